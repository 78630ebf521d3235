from bot.forge.repository import Repository


def test_files_of_a_comparison_carry_counts_and_hunks(state, work, git):
    git("mv", "kernel.py", "fast_kernel.py", cwd=work)
    (work / "blob.bin").write_bytes(bytes(range(256)))
    (work / "naïve name.md").write_text("a\nb\n")
    git("add", ".", cwd=work)
    git("commit", "--quiet", "--message", "Move", cwd=work)
    git("push", "--quiet", str(state.repository.path), "faster", cwd=work)
    refs = state.repository.refs()
    files = {file.filename: file for file in state.repository.files(refs["refs/heads/main"], refs["refs/heads/faster"])}
    assert set(files) == {"fast_kernel.py", "blob.bin", "naïve name.md", "notes.md"}
    moved = files["fast_kernel.py"]
    assert (moved.status, moved.previous, moved.additions, moved.deletions) == ("renamed", "kernel.py", 1, 1)
    assert moved.patch.startswith("@@ -2,7 +2,7 @@")
    assert (files["blob.bin"].patch, files["blob.bin"].status) == ("", "added")
    assert files["naïve name.md"].additions == 2
    assert moved.sha == git("rev-parse", "faster:fast_kernel.py", cwd=work)


def test_a_line_that_looks_like_a_diff_header_stays_in_its_file(state, work, git):
    (work / "kernel.py").write_text("diff --git a/x b/x\n+++ odd\n--- odd\n")
    git("commit", "--quiet", "--all", "--message", "Odd", cwd=work)
    git("push", "--quiet", str(state.repository.path), "faster", cwd=work)
    refs = state.repository.refs()
    files = state.repository.files(refs["refs/heads/main"], refs["refs/heads/faster"])
    assert [(file.filename, file.additions, file.deletions) for file in files] == [
        ("kernel.py", 3, 8),
        ("notes.md", 1, 0),
    ]


def test_commits_are_listed_oldest_first_with_their_whole_message(state, work, git):
    git("commit", "--quiet", "--allow-empty", "--message", "Second\n\nBecause.", cwd=work)
    git("push", "--quiet", str(state.repository.path), "faster", cwd=work)
    refs = state.repository.refs()
    commits = state.repository.commits(refs["refs/heads/main"], refs["refs/heads/faster"])
    assert [commit.message for commit in commits] == ["Faster", "Second\n\nBecause."]
    assert commits[1].parents == (commits[0].sha,)


def test_commit_is_named_by_sha_branch_or_not_at_all(state):
    main = state.repository.refs()["refs/heads/main"]
    assert state.repository.commit_sha("main") == state.repository.commit_sha(main) == main
    assert state.repository.commit_sha("--all") is None
    assert state.repository.commit_sha("f" * 40) is None


def test_folders_of_an_empty_repository_are_none(tmp_path, state):
    assert Repository.create(tmp_path / "empty.git", "main").folders("main", "contracts") == []
    assert state.repository.folders("main", "contracts") == ["rmsnorm"]
