// Passwords: the rules, the stored PBKDF2 digest, and the check, which costs the same for an
// unknown account.
import { pbkdf2, randomBytes, timingSafeEqual } from 'node:crypto';
import { promisify } from 'node:util';
import { isCommonPassword } from './common-password.ts';

const derive = promisify(pbkdf2);

/** OWASP's minimum for HMAC-SHA256; digests with fewer rounds are neither created nor accepted. */
export const minimumRounds = 600_000;
// A tampered row must not occupy a thread for minutes.
const maximumRounds = 5_000_000;
const saltBytes = 16;
const keyBytes = 32;
const digestShape = /^\$pbkdf2-sha256\$i=(\d{6,7})\$([A-Za-z0-9+/]{22})\$([A-Za-z0-9+/]{43})$/;

const minimumCharacters = 12;
const advisedCharacters = 15;
const maximumCharacters = 256;
const maximumBytes = 1024;

/**
 * The reason for refusing the password as a sentence; null when it is accepted. Characters are code
 * points after NFC. The password must not consist of `names`, such as the person's ID.
 */
export function passwordError(password: string, names: readonly string[]): string | null {
  const text = password.normalize('NFC');
  const characters = [...text].length;
  if (!text.isWellFormed()) return 'The password is not well-formed text.';
  if (characters < minimumCharacters) return `The password needs at least ${minimumCharacters} characters.`;
  if (characters > maximumCharacters || Buffer.byteLength(text) > maximumBytes) {
    return `The password may have at most ${maximumCharacters} characters and ${maximumBytes} bytes.`;
  }
  if (isCommonPassword(text, names)) return 'The password is too common; choose another one.';
  return null;
}

/** Whether an accepted password is shorter than recommended. */
export function isShortPassword(password: string): boolean {
  return [...password.normalize('NFC')].length < advisedCharacters;
}

/** The stored form of the password: `$pbkdf2-sha256$i=600000$salt$key`, base64 without padding. */
export async function digestPassword(password: string, rounds: number): Promise<string> {
  const salt = randomBytes(saltBytes);
  return digestText(rounds, salt, await deriveKey(password, salt, rounds));
}

/** A digest that no password matches, for checks of an unknown account: same work, same answer. */
export function dummyDigest(rounds: number): string {
  return digestText(rounds, randomBytes(saltBytes), randomBytes(keyBytes));
}

/**
 * Whether the password matches the digest, and the digest's number of rounds. Throws for a
 * malformed digest.
 */
export async function checkPassword(
  password: string,
  digest: string,
): Promise<{ matches: boolean; rounds: number }> {
  const [, roundsText = '', salt = '', key = ''] = digestShape.exec(digest) ?? [];
  const rounds = Number(roundsText);
  if (!(rounds >= minimumRounds && rounds <= maximumRounds))
    throw new Error('A stored password digest is not in our format.');
  const derivedKey = await deriveKey(password, Buffer.from(salt, 'base64'), rounds);
  return { matches: timingSafeEqual(derivedKey, Buffer.from(key, 'base64')), rounds };
}

// NFC, so that the same characters typed on another system are the same password.
function deriveKey(password: string, salt: Buffer, rounds: number): Promise<Buffer> {
  return derive(password.normalize('NFC'), salt, rounds, keyBytes, 'sha256');
}

function digestText(rounds: number, salt: Buffer, key: Buffer): string {
  return `$pbkdf2-sha256$i=${rounds}$${encodeUnpadded(salt)}$${encodeUnpadded(key)}`;
}

function encodeUnpadded(bytes: Buffer): string {
  return bytes.toString('base64').replace(/=+$/, '');
}
