// A bounded map that drops the entry used least recently (LRU).

export interface LruCache<Key, Value> {
  /** Makes the entry the most recently used one. */
  get(key: Key): Value | undefined;
  /** Returns the value without making its entry the most recently used one. */
  peek(key: Key): Value | undefined;
  /** Makes the entry the most recently used one; evicts others while the weights exceed the capacity. */
  set(key: Key, value: Value, weight?: number): void;
  delete(key: Key): void;
  clear(): void;
  /** Sum of the weights; the number of entries unless `set` was given weights. */
  weight(): number;
  /** Least recently used first. */
  entries(): IterableIterator<[Key, Value]>;
}

export interface LruCacheOptions<Key, Value> {
  /** Limit for the sum of all weights. An entry that alone exceeds it is evicted at once, and no other. */
  capacity: number;
  /** Called for each evicted entry, but not for `delete` and `clear`. */
  onEvict?(key: Key, value: Value): void;
}

export function createLruCache<Key, Value>({
  capacity,
  onEvict,
}: LruCacheOptions<Key, Value>): LruCache<Key, Value> {
  // A Map iterates in insertion order, so deleting and setting an entry moves it to the end.
  const values = new Map<Key, Value>();
  // Only weights other than 1, so that a cache without weights does not pay for a second map.
  const weights = new Map<Key, number>();
  let totalWeight = 0;
  // `get` does not move the entry that is already the newest: moving allocates, and most calls repeat
  // the previous key.
  let newestKey: Key | undefined;

  function remove(key: Key): void {
    if (!values.delete(key)) return;
    totalWeight -= weights.get(key) ?? 1;
    weights.delete(key);
  }

  return {
    get(key) {
      const value = values.get(key);
      if (value === undefined || key === newestKey) return value;
      values.delete(key);
      values.set(key, value);
      newestKey = key;
      return value;
    },
    peek: (key) => values.get(key),
    set(key, value, weight = 1) {
      remove(key);
      // Otherwise it would evict all others before it is evicted itself.
      if (weight > capacity) return onEvict?.(key, value);
      values.set(key, value);
      newestKey = key;
      if (weight !== 1) weights.set(key, weight);
      totalWeight += weight;
      for (const [oldest, evicted] of values) {
        if (totalWeight <= capacity) break;
        remove(oldest);
        onEvict?.(oldest, evicted);
      }
      return undefined;
    },
    delete: remove,
    clear() {
      values.clear();
      weights.clear();
      totalWeight = 0;
    },
    weight: () => totalWeight,
    entries: () => values.entries(),
  };
}
