// Random JSON documents from a seed, with spacing, escapes and number formats as real clients send them.

export interface DocumentGenerator {
  /** A random integer of at least 0 and below the limit. */
  below(limit: number): number;
  /** An object and its parsed value. Member names are not repeated. */
  document(): { text: string; value: Record<string, unknown> };
}

export function createDocumentGenerator(seed: number): DocumentGenerator {
  let state = seed >>> 0;
  // mulberry32, a 32-bit generator: the same seed gives the same documents on every machine.
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let bits = Math.imul(state ^ (state >>> 15), state | 1);
    bits ^= bits + Math.imul(bits ^ (bits >>> 7), bits | 61);
    return ((bits ^ (bits >>> 14)) >>> 0) / 2 ** 32;
  };
  const integerBelow = (limit: number) => Math.floor(next() * limit);
  const pick = <T>(items: readonly T[]): T => items[integerBelow(items.length)] as T;
  const space = () => pick(['', '', '', ' ', '\n', '\t', '\r\n  ']);
  const words = [...'a"\\}{[,:🌍\n', 'model', 'messages', '世界', 'data: [DONE]', ''];
  const string = () => {
    const text = Array.from({ length: integerBelow(4) }, () => pick(words)).join('');
    const json = JSON.stringify(text);
    // Any letter may be written as an escape, except where it would extend another escape.
    if (json.includes('\\')) return json;
    return json.replace(/[a-z]/g, (letter) =>
      integerBelow(3) === 0 ? `\\u${letter.charCodeAt(0).toString(16).padStart(4, '0')}` : letter,
    );
  };
  const randomScalar = () =>
    pick([
      string,
      () => pick(['0', '-1', '12345678901234567890123', '1.50', '1e400', '-0.0', 'true', 'false', 'null']),
    ])();
  const value = (depth: number): string => {
    if (depth > 3 || integerBelow(2) === 0) return randomScalar();
    if (integerBelow(2) === 0) return object(depth + 1);
    const items = Array.from({ length: integerBelow(4) }, () => value(depth + 1));
    return `[${space()}${items.join(`${space()},${space()}`)}${space()}]`;
  };
  const object = (depth: number): string => {
    // The index keeps the names apart; some are longer, and some have an escaped letter.
    const members = Array.from(
      { length: integerBelow(6) },
      (_, index) =>
        `${space()}"m${index}${pick(['', 'odel', '\\u0061'])}"${space()}:${space()}${value(depth)}${space()}`,
    );
    return `{${members.length === 0 ? space() : members.join(',')}}`;
  };
  return {
    below: integerBelow,
    document() {
      const text = space() + object(0) + space();
      return { text, value: JSON.parse(text) as Record<string, unknown> };
    },
  };
}
