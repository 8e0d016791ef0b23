// A sealed value opens only at its own location with its own key.
import { randomBytes } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import {
  createVault,
  newMasterKey,
  parseMasterKey,
  SealError,
  keyIdOf,
  type MasterKey,
} from '../../../src/kernel/secrets/vault.ts';

const makeKey = (): MasterKey => parseMasterKey(newMasterKey()) as MasterKey;
const place = { table: 'gateway.env_variables', key: 'ACME_API_KEY', version: 1 };
const reasonOf = (open: () => unknown): unknown => {
  try {
    open();
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
      expect(parseMasterKey(text)?.bytes).toEqual(bytes);
    }
    for (const text of [
      '',
      'short',
      randomBytes(31).toString('base64'),
      randomBytes(33).toString('base64'),
      bytes.toString('hex'),
    ]) {
      expect(parseMasterKey(text)).toBeNull();
    }
  });

  test('has a unique id that reveals nothing', () => {
    const firstKey = makeKey();
    expect(makeKey().kid).not.toBe(firstKey.kid);
    expect(firstKey.kid).toMatch(/^[0-9a-f]{12}$/);
    expect(firstKey.bytes.toString('hex')).not.toContain(firstKey.kid);
  });
});

describe('a sealed value', () => {
  const main = makeKey();
  const vault = createVault(main);

  test.each(['', 'x', 'sk-CANARY-1', 'ключ 🔑\nsecond line', 'k'.repeat(32 * 1024)])(
    'opens to the original: %#',
    (value) => {
      const sealedValue = vault.seal(main.kid, place, value);
      expect(vault.open(place, sealedValue)).toBe(value);
      expect(sealedValue).toMatch(/^v1\.[0-9a-f]{12}(\.[A-Za-z0-9_-]*){4}$/);
      expect(keyIdOf(sealedValue)).toBe(main.kid);
      if (value.length > 4)
        expect(sealedValue).not.toContain(Buffer.from(value).toString('base64url').slice(0, 8));
    },
  );

  test('opens only at the location it was sealed for', () => {
    const sealedValue = vault.seal(main.kid, place, 'value');
    for (const otherPlace of [
      { ...place, table: 'gateway.other' },
      { ...place, key: 'OTHER_KEY' },
      { ...place, version: 2 },
    ]) {
      expect(reasonOf(() => vault.open(otherPlace, sealedValue))).toBe('damaged');
    }
  });

  test('does not open with one character changed', () => {
    const sealedValue = vault.seal(main.kid, place, 'value');
    const head = sealedValue.indexOf('.', 3) + 1;
    for (let offset = head; offset < sealedValue.length; offset += 1) {
      if (sealedValue[offset] === '.') continue;
      const changedText =
        sealedValue.slice(0, offset) +
        (sealedValue[offset] === 'A' ? 'B' : 'A') +
        sealedValue.slice(offset + 1);
      expect(
        reasonOf(() => vault.open(place, changedText)),
        `character ${offset}`,
      ).toBe('damaged');
    }
  });

  test('does not open with another length or version', () => {
    const sealedValue = vault.seal(main.kid, place, 'value');
    for (const text of [
      '',
      'v1',
      sealedValue.slice(0, -1),
      `${sealedValue}A`,
      `${sealedValue}.`,
      sealedValue.replace('v1', 'v2'),
    ]) {
      expect(
        reasonOf(() => vault.open(place, text)),
        text,
      ).toBe('damaged');
    }
  });

  test('opens only with its own key', () => {
    const sealedValue = vault.seal(main.kid, place, 'value');
    expect(reasonOf(() => createVault(makeKey()).open(place, sealedValue))).toBe('unknown_key');
    // Another key with the same id.
    expect(
      reasonOf(() => createVault({ kid: main.kid, bytes: randomBytes(32) }).open(place, sealedValue)),
    ).toBe('damaged');
    expect(createVault(makeKey(), [main]).open(place, sealedValue)).toBe('value');
  });

  test('never repeats a nonce in 10,000 seals', () => {
    const nonces = new Set<string>();
    for (let count = 0; count < 10_000; count += 1) {
      const [, , wrapped = '', nonce = ''] = vault.seal(main.kid, place, 'same').split('.');
      // The wrapped key begins with a nonce too: 12 bytes are 16 characters.
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
    const [firstDerived, secondDerived] = createVault(mainKey, [formerKey]).derive('links');
    expect(firstDerived).toEqual(createVault(mainKey).derive('links')[0]);
    expect(secondDerived).toEqual(createVault(formerKey).derive('links')[0]);
    expect(firstDerived).toHaveLength(32);
    expect(
      firstDerived?.equals(mainKey.bytes) ||
        firstDerived?.equals(secondDerived as Buffer) ||
        firstDerived?.equals(createVault(mainKey).derive('other')[0] as Buffer),
    ).toBe(false);
  });
});
