// A set for objects that are added and removed at a high rate, such as running requests. When V8's Set or Map
// outgrows its table, the old table keeps its members and a reference to the new table. Once one such table
// is in the old generation, garbage collection promotes the whole chain of tables: a third of all requests,
// with everything that they refer to, would stay in memory until a full collection
// (docs/decisions/2026-11-22-processor-time.md).

/** One member of the set. */
export interface ActiveSetEntry<T> {
  readonly member: T;
  /** The index of the member; only the set itself uses it. */
  index: number;
}

export class ActiveSet<T> {
  readonly #entries: ActiveSetEntry<T>[] = [];

  /** Adds a member, even if the set already contains it. Pass the returned entry to `delete`. */
  add(member: T): ActiveSetEntry<T> {
    const entry = { member, index: this.#entries.length };
    this.#entries.push(entry);
    return entry;
  }

  /** Deletes the member of the entry. A second call has no effect. */
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

  /** A copy of the members, in no particular order. */
  members(): T[] {
    return this.#entries.map(({ member }) => member);
  }
}
