// Normalizes e-mail addresses: one form for accounts, attempt counters and recipients.
import type { Person } from './provider.ts';

/**
 * The trimmed address in lower case, or null for a string that is not an address. Mail servers ignore case
 * in practice. The contract allows ASCII only, so lower case never maps two different addresses to one.
 */
export function normalizeAddress(input: string): string | null {
  const address = input.trim().toLowerCase();
  return isAddress(address) ? address : null;
}

/** The unchanged address that a provider claims, or null when it does not match the contract's `Email`. */
export function claimedAddress(claim: unknown): string | null {
  return typeof claim === 'string' && isAddress(claim) ? claim : null;
}

function isAddress(text: string): boolean {
  return text.length <= 254 && addressPattern.test(text);
}

// The contract's pattern, repeated here because no schema validates login inputs and claims of providers.
const addressPattern = /^[a-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63}){1,8}$/i;

/** The owner of a verified address. Password and e-mail code logins lead to the same account of a Bureau. */
export function emailPerson(address: string, displayName: string | null = null): Person {
  return { issuer: 'email', subject: address, email: address, displayName };
}
