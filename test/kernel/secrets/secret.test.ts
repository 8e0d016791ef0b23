// Tokens, random texts and the redactor of secrets.
import { describe, expect, test } from 'vitest';
import {
  createRedactor,
  isRandomText,
  parseToken,
  randomText,
  secretsEqual,
  createToken,
  tokenDigest,
} from '../../../src/kernel/secrets/secret.ts';

describe('token', () => {
  test('has the expected shape, kind and checksum', () => {
    const tokens = new Set<string>();
    for (let round = 0; round < 500; round += 1) {
      for (const kind of ['usr', 'adm', 'agt'] as const) {
        const credential = createToken(kind);
        expect(credential).toMatch(/^th_(usr|adm|agt)_[0-9A-Za-z]{49}$/);
        expect(parseToken(credential)).toBe(kind);
        tokens.add(credential);
      }
    }
    expect(tokens.size).toBe(1_500);
  });

  test('refuses any changed character, kind, length or space', () => {
    const credential = createToken('usr');
    for (let index = 'th_usr_'.length; index < credential.length; index += 1) {
      const otherCharacter = credential[index] === 'a' ? 'b' : 'a';
      expect(
        parseToken(credential.slice(0, index) + otherCharacter + credential.slice(index + 1)),
      ).toBeNull();
    }
    for (const invalidCredential of [
      credential.replace('usr', 'adm'),
      `${credential}0`,
      credential.slice(0, -1),
      ` ${credential}`,
      `${credential}\n`,
      credential.toUpperCase(),
      '',
      'th_usr_',
    ]) {
      expect(parseToken(invalidCredential)).toBeNull();
    }
  });

  test('is stored as the SHA-256 of its text', () => {
    expect(tokenDigest('abc').toString('hex')).toBe(
      'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad',
    );
  });
});

describe('secretsEqual', () => {
  test('compares texts of any length', () => {
    expect(secretsEqual('abc', 'abc')).toBe(true);
    expect(secretsEqual('abc', 'abd')).toBe(false);
    expect(secretsEqual('abc', 'abcd')).toBe(false);
  });
});

describe('isRandomText', () => {
  test('accepts what randomText returns', () => {
    for (let round = 0; round < 500; round += 1) expect(isRandomText(randomText())).toBe(true);
  });

  test('refuses another length or character', () => {
    const text = '0'.repeat(43);
    for (const invalidText of ['', text.slice(1), `${text}0`, `${text}\n`, `${text.slice(1)}-`])
      expect(isRandomText(invalidText)).toBe(false);
  });
});

describe('redactor', () => {
  test('hides a held value until its last holder releases it', () => {
    const redactor = createRedactor();
    const value = 'CANARY "quoted"/+ä';
    const releaseFirst = redactor.hold(value);
    const releaseSecond = redactor.hold(value);
    const bytes = Buffer.from(value);
    const forms = [
      value,
      JSON.stringify(value).slice(1, -1),
      encodeURIComponent(value),
      bytes.toString('base64'),
      bytes.toString('base64url'),
      bytes.toString('hex'),
    ];
    for (const form of forms)
      expect(redactor.hide(`before ${form} after`)).toMatch(/^before \[redacted\]=* after$/);
    releaseFirst();
    releaseFirst();
    expect(redactor.hide(value)).toBe('[redacted]');
    releaseSecond();
    expect(redactor.hide(value)).toBe(value);
  });

  test('hides tokens and bearer credentials that are not registered', () => {
    const redactor = createRedactor();
    expect(redactor.hide(`got ${createToken('adm')}!`)).toBe('got [redacted]!');
    expect(redactor.hide('Authorization: Bearer sk-abc.def_123')).toBe('Authorization: Bearer [redacted]');
  });

  test('hides the longer of two secrets', () => {
    const redactor = createRedactor();
    redactor.hold('secret');
    redactor.hold('secret-and-more');
    expect(redactor.hide('x secret-and-more y')).toBe('x [redacted] y');
  });

  test('takes the characters of a pattern literally', () => {
    const redactor = createRedactor();
    redactor.hold('a.*(b)[c]$');
    expect(redactor.hide('a.*(b)[c]$ aXX(b)[c]$')).toBe('[redacted] aXX(b)[c]$');
  });

  test('ignores a value too short to be a secret', () => {
    const redactor = createRedactor();
    redactor.hold('on');
    expect(redactor.hide('once upon')).toBe('once upon');
  });
});
