// What may be stored under which key, and what is shown of it. A masked value never comes back as a value.

// The bullet that stands for hidden characters; no value has it.
const hint = '••••';
const bullet = '•';
// Of a value this short four characters would say too much.
const maximumHidden = 12;
const shownCharacters = 4;

const maximumValueBytes = 32 * 1024;
const keyShape = /^[A-Z][A-Z0-9_]{0,127}$/;

/** What is shown of a secret. */
export function masked(value: string): string {
  const characters = [...value];
  return characters.length <= maximumHidden ? hint : hint + characters.slice(-shownCharacters).join('');
}

export interface Fault {
  code: 'invalid_request' | 'env_key_reserved' | 'env_value_masked';
  member: 'key' | 'value';
  /** Goes on from "the key" or "the value". */
  message: string;
}

/** Why the pair cannot be stored, or null. */
export function faultOf(key: string, value: string, isReserved: (key: string) => boolean): Fault | null {
  return keyFault(key, isReserved) ?? valueFault(value);
}

export function keyFault(key: string, isReserved: (key: string) => boolean): Fault | null {
  if (!keyShape.test(key)) {
    return {
      code: 'invalid_request',
      member: 'key',
      message: 'must be upper-case letters, digits and `_`, 128 at most, a letter first',
    };
  }
  if (isReserved(key)) {
    return {
      code: 'env_key_reserved',
      member: 'key',
      message: `${key} is read from the process at start and cannot be set here`,
    };
  }
  return null;
}

function valueFault(value: string): Fault | null {
  if (value.includes(bullet))
    return { code: 'env_value_masked', member: 'value', message: 'is a masked one; send the value itself' };
  if (Buffer.byteLength(value, 'utf8') > maximumValueBytes)
    return { code: 'invalid_request', member: 'value', message: 'must be at most 32 KiB' };
  if (value.includes('\0'))
    return { code: 'invalid_request', member: 'value', message: 'must not hold a NUL' };
  return null;
}
