// Counts the calls of each user that hold or request credits in this process. If the credits are short
// while others run, a call without an output limit reserves only half of them.
export class RunningCalls {
  readonly #counts = new Map<string, number>();

  begin(userId: string): void {
    this.#counts.set(userId, (this.#counts.get(userId) ?? 0) + 1);
  }

  end(userId: string): void {
    const remainingCount = (this.#counts.get(userId) ?? 1) - 1;
    if (remainingCount === 0) this.#counts.delete(userId);
    else this.#counts.set(userId, remainingCount);
  }

  count(userId: string): number {
    return this.#counts.get(userId) ?? 0;
  }
}
