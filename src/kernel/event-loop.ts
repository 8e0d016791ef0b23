// For work that is cut into pieces so that it does not hold the event loop.

/** Resolves in the next turn of the event loop: timers and other connections have theirs before. */
export function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
