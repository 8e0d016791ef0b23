// A set for objects that are added and removed at a high rate, such as running requests. V8's own Set and Map
// keep a reference from each former table to the next one, and a former table keeps the members that it had.
// Once a table is in the old generation, these chains promote a third of all requests with everything that
// they refer to (docs/decisions/2026-11-22-processor-time.md).

/** One member of the set. */
export interface ActiveSetEntry<T> {
  readonly member: T;
  /** The index of the member; only the set itself uses it. */
  index: number;
}

export class ActiveSet<T> {
  readonly #entries: ActiveSetEntry<T>[] = [];

  /** Adds a member, also one that is in the set already. The entry is for `delete`. */
  add(member: T): ActiveSetEntry<T> {
    const entry = { member, index: this.#entries.length };
    this.#entries.push(entry);
    return entry;
  }

  /** Deletes a member by its entry. Without effect the second time. */
  delete(entry: ActiveSetEntry<T>): void {
    if (this.#entries[entry.index] !== entry) return;
    const lastEntry = this.#entries.pop() as ActiveSetEntry<T>;
    if (lastEntry === entry) return;
    this.#entries[entry.index] = lastEntry;
    lastEntry.index = entry.index;
  }

  get size(): number {
    return this.#entries.length;
  }

  /** The members at the time of the call, in no order. */
  members(): T[] {
    return this.#entries.map(({ member }) => member);
  }
}
