// The list of close functions for the resources that a server opens while it starts.
import { describe, expect, test } from 'vitest';
import { closeOnError, createClosers } from '../../src/kernel/closers.ts';

describe('createClosers', () => {
  test('closes in reverse order even if one function throws', async () => {
    const order: string[] = [];
    const closers = createClosers();
    closers.defer(() => order.push('database'));
    closers.defer(async () => {
      order.push('service');
      throw new Error('the service does not close');
    });
    closers.defer(() => order.push('socket'));
    await expect(closers.close()).rejects.toThrow('the service does not close');
    expect(order).toEqual(['socket', 'service', 'database']);
  });

  test('closes once for any number of calls', async () => {
    let closes = 0;
    const closers = createClosers();
    closers.defer(() => (closes += 1));
    await Promise.all([closers.close(), closers.close()]);
    await closers.close();
    expect(closes).toBe(1);
  });
});

describe('closeOnError', () => {
  test('closes open resources before it throws the error of the start', async () => {
    let isOpen = true;
    const closers = createClosers();
    closers.defer(() => {
      isOpen = false;
      throw new Error('the close fails as well');
    });
    await expect(closeOnError(closers, () => Promise.reject(new Error('the start fails')))).rejects.toThrow(
      'the start fails',
    );
    expect(isOpen).toBe(false);
  });
});
