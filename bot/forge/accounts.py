"""Who is known to the forge, and who may do what in its repository."""

from bot.forge.records import ROLES, Role, User
from bot.forge.refusals import RequestRefusedError


class Accounts:
    """The users of a private or public repository."""

    def __init__(self, *, private: bool) -> None:
        """Start with nobody."""
        self._private = private
        self._users: dict[str, User] = {}

    def add(self, login: str, permission: Role, token: str, *, actions_bot: bool = False) -> User:
        """Register an account with its role in the repository."""
        user = User(len(self._users) + 101, login, permission, token, actions_bot)
        self._users[login] = user
        return user

    def everybody(self) -> list[User]:
        """All accounts, in the order they were added."""
        return list(self._users.values())

    def user(self, login: str) -> User:
        """The account; 404 when there is none."""
        try:
            return self._users[login]
        except KeyError:
            raise RequestRefusedError(404, "Not Found") from None

    def of_email(self, email: str) -> User | None:
        """Whose address for commits it is; GitHub gives everybody one of this form."""
        name, _, host = email.rpartition("@")
        return self._users.get(name) if host == "users.noreply.github.com" else None

    def of_token(self, token: str) -> User:
        """Whose token it is; 401 when nobody's."""
        for user in self.everybody():
            if user.token == token:
                return user
        raise RequestRefusedError(401, "Bad credentials")

    def role(self, login: str) -> Role:
        """What the account may do; everybody reads a public repository."""
        role = self.user(login).role
        return "read" if role == "none" and not self._private else role

    def collaborator(self, login: str) -> User:
        """The person whose permission is asked for; an App is not one."""
        user = self.user(login)
        if user.is_bot:
            raise RequestRefusedError(404, f"{login} is not a user")
        return user

    def allow(self, login: str | None, needed: Role) -> User:
        """The account, if its role suffices. 401 without one, 404 where it may not even read, else 403."""
        if login is None:
            raise RequestRefusedError(401, "Requires authentication")
        have = ROLES.index(self.role(login))
        if have < ROLES.index("read"):
            raise RequestRefusedError(404, "Not Found")
        user = self.user(login)
        if have < ROLES.index(needed):
            message = "Resource not accessible by integration" if user.is_bot else f"Must have {needed} permission"
            raise RequestRefusedError(403, message)
        return user

    def admit(self, login: str | None) -> None:
        """Let nobody look at a private repository who may not read it: for them it does not exist."""
        if self._private and (login is None or self.role(login) == "none"):
            raise RequestRefusedError(404, "Not Found")
