// A sealed value opens only at its own location with its own key.
import { randomBytes } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import {
  createVault,
  newMasterKey,
  readMasterKey,
  SealError,
  keyIdOf,
  type MasterKey,
} from '../../../src/kernel/secrets/vault.ts';

const makeKey = (): MasterKey => readMasterKey(newMasterKey()) as MasterKey;
const place = { table: 'gateway.env_variables', key: 'ACME_API_KEY', version: 1 };
const reasonOf = (act: () => unknown): unknown => {
  try {
    act();
  } catch (error) {
    return error instanceof SealError ? error.reason : error;
  }
  return 'opened';
};

describe('a master key', () => {
  test('is exactly 32 bytes of base64 or base64url', () => {
    const bytes = randomBytes(32);
    for (const text of [
      bytes.toString('base64'),
      bytes.toString('base64url'),
      ` ${bytes.toString('base64')}\n`,
    ]) {
      expect(readMasterKey(text)?.bytes).toEqual(bytes);
    }
    for (const text of [
      '',
      'short',
      randomBytes(31).toString('base64'),
      randomBytes(33).toString('base64'),
      bytes.toString('hex'),
    ]) {
      expect(readMasterKey(text)).toBeNull();
    }
  });

  test('has a unique id that reveals nothing', () => {
    const first = makeKey();
    expect(makeKey().kid).not.toBe(first.kid);
    expect(first.kid).toMatch(/^[0-9a-f]{12}$/);
    expect(first.bytes.toString('hex')).not.toContain(first.kid);
  });
});

describe('a sealed value', () => {
  const main = makeKey();
  const vault = createVault(main);

  test.each(['', 'x', 'sk-CANARY-1', 'ключ 🔑\nsecond line', 'k'.repeat(32 * 1024)])(
    'opens to the original: %#',
    (value) => {
      const sealed = vault.seal(main.kid, place, value);
      expect(vault.open(place, sealed)).toBe(value);
      expect(sealed).toMatch(/^v1\.[0-9a-f]{12}(\.[A-Za-z0-9_-]*){4}$/);
      expect(keyIdOf(sealed)).toBe(main.kid);
      if (value.length > 4)
        expect(sealed).not.toContain(Buffer.from(value).toString('base64url').slice(0, 8));
    },
  );

  test('opens only at the location it was sealed for', () => {
    const sealed = vault.seal(main.kid, place, 'value');
    for (const otherPlace of [
      { ...place, table: 'gateway.other' },
      { ...place, key: 'OTHER_KEY' },
      { ...place, version: 2 },
    ]) {
      expect(reasonOf(() => vault.open(otherPlace, sealed))).toBe('damaged');
    }
  });

  test('does not open with any one bit changed', () => {
    const sealed = vault.seal(main.kid, place, 'value');
    const head = sealed.indexOf('.', 3) + 1;
    for (let at = head; at < sealed.length; at += 1) {
      if (sealed[at] === '.') continue;
      const changedText = sealed.slice(0, at) + (sealed[at] === 'A' ? 'B' : 'A') + sealed.slice(at + 1);
      expect(
        reasonOf(() => vault.open(place, changedText)),
        `character ${at}`,
      ).toBe('damaged');
    }
    for (const text of [
      '',
      'v1',
      sealed.slice(0, -1),
      `${sealed}A`,
      `${sealed}.`,
      sealed.replace('v1', 'v2'),
    ]) {
      expect(reasonOf(() => vault.open(place, text))).toBe('damaged');
    }
  });

  test('reports a missing master key', () => {
    const sealed = vault.seal(main.kid, place, 'value');
    expect(reasonOf(() => createVault(makeKey()).open(place, sealed))).toBe('unknown_key');
    // Another key under the same name does not open it either.
    expect(reasonOf(() => createVault({ kid: main.kid, bytes: randomBytes(32) }).open(place, sealed))).toBe(
      'damaged',
    );
    expect(createVault(makeKey(), [main]).open(place, sealed)).toBe('value');
  });

  test('never repeats a nonce in 10,000 seals', () => {
    const nonces = new Set<string>();
    for (let count = 0; count < 10_000; count += 1) {
      const [, , wrapped = '', nonce = ''] = vault.seal(main.kid, place, 'same').split('.');
      nonces.add(nonce).add(wrapped.slice(0, 16));
    }
    expect(nonces.size).toBe(20_000);
  });
});

describe('a fingerprint', () => {
  test('is equal for equal values under one key alone', () => {
    const main = makeKey();
    const vault = createVault(main);
    expect(vault.fingerprint('secret')).toBe(createVault(main).fingerprint('secret'));
    expect(vault.fingerprint('secret')).not.toBe(vault.fingerprint('secret '));
    expect(vault.fingerprint('secret')).not.toBe(createVault(makeKey()).fingerprint('secret'));
    expect(vault.fingerprint('secret')).toMatch(/^fp_[0-9a-f]{16}$/);
  });
});

describe('a derived key', () => {
  test('depends only on the master key and the purpose', () => {
    const [mainKey, formerKey] = [makeKey(), makeKey()];
    const [first, second] = createVault(mainKey, [formerKey]).derive('links');
    expect(first).toEqual(createVault(mainKey).derive('links')[0]);
    expect(second).toEqual(createVault(formerKey).derive('links')[0]);
    expect(first).toHaveLength(32);
    expect(
      first?.equals(mainKey.bytes) ||
        first?.equals(second as Buffer) ||
        first?.equals(createVault(mainKey).derive('other')[0] as Buffer),
    ).toBe(false);
  });
});
