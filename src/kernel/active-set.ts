// A set for objects that are added and removed at a high rate, such as running requests. V8's own Set and Map
// keep a reference from each former table to the next one, and a former table keeps the members that it had.
// Once a table is in the old generation, these chains promote a third of all requests with everything that
// they refer to (docs/decisions/2026-11-22-processor-time.md).

/** The place of one member. */
export interface Place<T> {
  readonly member: T;
  /** The index of the member; only the set itself uses it. */
  index: number;
}

export class ActiveSet<T> {
  readonly #places: Place<T>[] = [];

  /** Adds a member, also one that is in the set already. The place is for `delete`. */
  add(member: T): Place<T> {
    const place = { member, index: this.#places.length };
    this.#places.push(place);
    return place;
  }

  /** Deletes a member by its place. Without effect the second time. */
  delete(place: Place<T>): void {
    if (this.#places[place.index] !== place) return;
    const lastPlace = this.#places.pop() as Place<T>;
    if (lastPlace === place) return;
    this.#places[place.index] = lastPlace;
    lastPlace.index = place.index;
  }

  get size(): number {
    return this.#places.length;
  }

  /** The members at the time of the call, in no order. */
  members(): T[] {
    return this.#places.map(({ member }) => member);
  }
}
