"""Our own order: which F, B, I or W a device does next, for these very stages."""

from planner.solve.order.bound import bound_s
from planner.solve.order.planned import planned_actions
from planner.solve.order.problem import order_problem

__all__ = ["bound_s", "order_problem", "planned_actions"]
