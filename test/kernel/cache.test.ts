import { describe, expect, it } from 'vitest';
import { createLruCache } from '../../src/kernel/cache.ts';

describe('createLruCache', () => {
  it('drops the entry used least recently', () => {
    const cache = createLruCache<string, number>({ capacity: 2 });
    cache.set('a', 1);
    cache.set('b', 2);
    cache.get('a');
    cache.set('c', 3);
    expect([...cache.entries()]).toEqual([
      ['a', 1],
      ['c', 3],
    ]);
  });

  it('keeps the order on a peek', () => {
    const cache = createLruCache<string, number>({ capacity: 2 });
    cache.set('a', 1);
    cache.set('b', 2);
    cache.peek('a');
    cache.set('c', 3);
    expect(cache.peek('a')).toBeUndefined();
  });

  it('bounds the sum of the weights', () => {
    const cache = createLruCache<string, string>({ capacity: 10 });
    cache.set('a', 'first', 6);
    cache.set('b', 'second', 6);
    expect([...cache.entries()]).toEqual([['b', 'second']]);
    expect(cache.weight()).toBe(6);
  });

  it('counts an entry once when it is set again', () => {
    const cache = createLruCache<string, string>({ capacity: 10 });
    cache.set('a', 'first', 6);
    cache.set('a', 'second', 3);
    expect(cache.weight()).toBe(3);
  });

  it('evicts only the entry that exceeds the capacity', () => {
    const cache = createLruCache<string, string>({ capacity: 10 });
    cache.set('a', 'small', 4);
    cache.set('b', 'huge', 11);
    expect([...cache.entries()]).toEqual([['a', 'small']]);
    expect(cache.weight()).toBe(4);
  });

  it('reports an eviction and not a removal', () => {
    const evictedKeys: string[] = [];
    const cache = createLruCache<string, number>({ capacity: 1, onEvict: (key) => evictedKeys.push(key) });
    cache.set('a', 1);
    cache.set('b', 2);
    cache.delete('b');
    expect(evictedKeys).toEqual(['a']);
  });
});
