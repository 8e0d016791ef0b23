// E-mail addresses: the one form in which an address is looked up, counted and written to.

/**
 * The address as this server knows it: in lower case, which mail servers ignore. The contract admits ASCII
 * alone, where lower case never makes one address out of two.
 */
export function normalAddress(given: string): string | null {
  const address = given.trim().toLowerCase();
  return address.length <= 254 && addressShape.test(address) ? address : null;
}

// The contract's, for the inputs that no schema looks at.
const addressShape = /^[a-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63}){1,8}$/;

/** Who has proven an address, whichever way: there is one account for it in a Bureau. */
export function emailPerson(address: string, displayName: string | null = null) {
  return { issuer: 'email', subject: address, email: address, displayName };
}
