// Validates keys and values, and masks secrets. A masked value cannot be written back as a value.

// Replaces hidden characters. Values cannot contain it.
const bullet = '•';
const mask = bullet.repeat(4);
// Showing the last four characters of a shorter value would reveal too much of it.
const minLengthWithHint = 13;
const hintLength = 4;

const maxValueBytes = 32 * 1024;
const keyPattern = /^[A-Z][A-Z0-9_]{0,127}$/;

/** Four bullets, followed by the last four characters of a value that is longer than twelve characters. */
export function maskValue(value: string): string {
  const characters = [...value];
  return characters.length < minLengthWithHint ? mask : mask + characters.slice(-hintLength).join('');
}

export interface VariableError {
  code: 'invalid_request' | 'env_key_reserved' | 'env_value_masked';
  member: 'key' | 'value';
  /** Continues a sentence that starts with "the key" or "the value". */
  message: string;
}

/** What the server itself requires of single keys. */
export interface KeyRules {
  /** Whether the server reads the key when it starts; such keys cannot be stored. */
  isReserved(key: string): boolean;
  /**
   * Why the server cannot use this value, continuing a sentence that starts with "the value"; null if it can.
   */
  explainUnusable(key: string, value: string): string | null;
}

/** Why the variable cannot be stored, or null. */
export function validateVariable(key: string, value: string, rules: KeyRules): VariableError | null {
  return validateKey(key, rules) ?? validateValue(value) ?? validateUse(key, value, rules);
}

export function validateKey(key: string, rules: Pick<KeyRules, 'isReserved'>): VariableError | null {
  if (!keyPattern.test(key)) {
    return {
      code: 'invalid_request',
      member: 'key',
      message: 'must be upper-case letters, digits and `_`, 128 at most, a letter first',
    };
  }
  if (rules.isReserved(key)) {
    return {
      code: 'env_key_reserved',
      member: 'key',
      message: `${key} is read from the process environment at startup and cannot be set here`,
    };
  }
  return null;
}

function validateValue(value: string): VariableError | null {
  if (value.includes(bullet))
    return { code: 'env_value_masked', member: 'value', message: 'is masked; send the original value' };
  if (Buffer.byteLength(value, 'utf8') > maxValueBytes)
    return { code: 'invalid_request', member: 'value', message: 'must be at most 32 KiB' };
  if (value.includes('\0'))
    return { code: 'invalid_request', member: 'value', message: 'must not contain a NUL character' };
  return null;
}

function validateUse(key: string, value: string, rules: KeyRules): VariableError | null {
  const message = rules.explainUnusable(key, value);
  return message === null ? null : { code: 'invalid_request', member: 'value', message };
}
