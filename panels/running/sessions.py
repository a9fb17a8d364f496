"""The sessions that the page keeps open between runs. The pool itself does not need the page."""

from workbench.serving.sessions import CHECK_SECONDS as CHECK_SECONDS
from workbench.serving.sessions import IDLE_MINUTES as IDLE_MINUTES
from workbench.serving.sessions import LONGEST_IDLE as LONGEST_IDLE
from workbench.serving.sessions import SHORTEST_IDLE as SHORTEST_IDLE
from workbench.serving.sessions import SessionPool as SessionPool
