// Tokens (creation, format, comparison) and the redactor, which hides secret values
// in logs. A token is refused by its format before a lookup.
import { hash, randomBytes, timingSafeEqual } from 'node:crypto';
import { crc32 } from 'node:zlib';

/** The owner of a token: a user, an administrator, or one agent. */
export type TokenKind = 'usr' | 'adm' | 'agt';

const base62 = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
const tokenShape = /^th_(usr|adm|agt)_[0-9A-Za-z]{49}$/;
const randomTextShape = /^[0-9A-Za-z]{43}$/;
// 62^43 is just above 2^256 and 62^6 above 2^32.
const payloadLength = 43;
const checksumLength = 6;

/** A new token: 256 random bits and a checksum, such as `th_usr_…`. Shown once; only its digest is kept. */
export function createToken(kind: TokenKind): string {
  const textWithoutChecksum = `th_${kind}_${randomText()}`;
  return textWithoutChecksum + checksumOf(textWithoutChecksum);
}

/** 256 random bits as 43 base62 characters, for secrets that are not tokens. */
export function randomText(): string {
  return inBase62(BigInt(`0x${randomBytes(32).toString('hex')}`), payloadLength);
}

/** Whether the text has the form of `randomText`. Says nothing about validity. */
export function isRandomText(text: string): boolean {
  return randomTextShape.test(text);
}

/** The kind of a well-formed token; null for anything else. Says nothing about validity. */
export function parseToken(text: string): TokenKind | null {
  const match = tokenShape.exec(text);
  if (!match) return null;
  const textWithoutChecksum = text.slice(0, -checksumLength);
  return text.endsWith(checksumOf(textWithoutChecksum)) ? (match[1] as TokenKind) : null;
}

/**
 * The stored form of a token or another random secret, its SHA-256. A plain hash is enough for 256
 * random bits.
 */
export function tokenDigest(text: string): Buffer {
  return hash('sha256', text, 'buffer');
}

/** Compares in a time that is independent of both values and their lengths. */
export function secretsEqual(a: string, b: string): boolean {
  return timingSafeEqual(tokenDigest(a), tokenDigest(b));
}

// Computes with numbers, because a BigInt for each digit would cost more than the lookup of the token.
function checksumOf(text: string): string {
  let digits = '';
  let remainder = crc32(text);
  for (let place = 0; place < checksumLength; place += 1) {
    digits = base62.charAt(remainder % 62) + digits;
    remainder = Math.floor(remainder / 62);
  }
  return digits;
}

function inBase62(value: bigint, length: number): string {
  let digits = '';
  for (let remainder = value; remainder > 0n; remainder /= 62n)
    digits = base62[Number(remainder % 62n)] + digits;
  return digits.padStart(length, '0');
}

/** Holds the live secret values of this process and hides them in text. */
export interface Redactor {
  /**
   * Hides the value from now on, and its URL-encoded, base64 and hexadecimal forms.
   * Values under six characters are not held, as they occur in ordinary words.
   * Returns the release function; a value held twice stays hidden until both are released.
   */
  hold(value: string): () => void;
  /** The text without held values, our tokens and bearer credentials. */
  hide(text: string): string;
  /**
   * Whether a serialized JSON document may have something to hide in one of its strings or numbers. Never
   * false if `hide` would find something in one of them. Costs about a nanosecond per character.
   */
  suspects(json: string): boolean;
}

const redactedMark = '[redacted]';
const minimumHeldLength = 6;
// Formats that are secrets even when their value is not held. The checksum is not
// verified: a token with a typing error still reveals most of a secret.
const knownShapes =
  /th_(?:usr|adm|agt)_[0-9A-Za-z]{20,}|lg[a-z]_[0-9A-Za-z]{20,}|(\b[Bb]earer )[A-Za-z0-9._~+/=-]{6,}/g;
// The same shapes at one position of serialized JSON. Without `\b`, because there a line break before the
// word is written `\n`, and the n would count as part of the word.
const shapeAtPosition =
  /th_(?:usr|adm|agt)_[0-9A-Za-z]{20}|lg[a-z]_[0-9A-Za-z]{20}|[Bb]earer [A-Za-z0-9._~+/=-]{6}/y;
const shapePrefixes = [
  'th_u',
  'th_a',
  'Bear',
  'bear',
  ...[...'abcdefghijklmnopqrstuvwxyz'].map((letter) => `lg${letter}_`),
];

export function createRedactor(): Redactor {
  const holders = new Map<string, number>();
  /** Undefined after a change of the held values; the next use builds it again. */
  let finder: FormFinder | undefined;

  return {
    hold(value) {
      if (value.length < minimumHeldLength) return () => {};
      const count = holders.get(value) ?? 0;
      holders.set(value, count + 1);
      if (count === 0) finder = undefined;
      let isReleased = false;
      return () => {
        if (isReleased) return;
        isReleased = true;
        const remaining = (holders.get(value) ?? 1) - 1;
        if (remaining > 0) holders.set(value, remaining);
        else {
          holders.delete(value);
          finder = undefined;
        }
      };
    },
    hide(text) {
      finder ??= createFormFinder(holders.keys());
      if (!finder.isIn(text)) return text;
      const spans = [...finder.spans(text), ...shapesIn(text)];
      return spans.length === 0 ? text : withoutSpans(text, spans);
    },
    suspects(json) {
      finder ??= createFormFinder(holders.keys());
      return finder.isIn(json);
    },
  };
}

type Span = [start: number, end: number];

interface FormFinder {
  /** Whether a form, or one of the known shapes, begins anywhere in the text. */
  isIn(text: string): boolean;
  spans(text: string): Span[];
}

// Held values may be many and as long as a certificate, too much for a regular
// expression. The forms are found by their first four characters, in a hash table
// that rules out nearly every position of a text, then by six.
function createFormFinder(heldValues: Iterable<string>): FormFinder {
  const values = [...heldValues];
  // Half of a surrogate pair is serialized differently alone and beside its other half, so with such a
  // value every text is suspected.
  const hasBrokenValue = values.some((value) => !value.isWellFormed());
  const forms = groupForms(values);
  const nextPlace = createPrefixSearch([...shapePrefixes, ...forms.keys()]);

  function formAt(text: string, position: number): string | undefined {
    return forms
      .get(text.slice(position, position + minimumHeldLength))
      ?.find((form) => text.startsWith(form, position));
  }

  return {
    isIn(text) {
      if (hasBrokenValue) return true;
      for (let position = nextPlace(text, 0); position >= 0; position = nextPlace(text, position + 1)) {
        if (formAt(text, position) !== undefined) return true;
        shapeAtPosition.lastIndex = position;
        if (shapeAtPosition.test(text)) return true;
      }
      return false;
    },
    spans(text) {
      const spans: Span[] = [];
      // Continue at the next character: a secret may begin inside another one.
      for (let position = nextPlace(text, 0); position >= 0; position = nextPlace(text, position + 1)) {
        const form = formAt(text, position);
        if (form !== undefined) spans.push([position, position + form.length]);
      }
      return spans;
    },
  };
}

/** The forms of all values by their first six characters. */
function groupForms(values: readonly string[]): Map<string, string[]> {
  const forms = new Map<string, string[]>();
  for (const form of values.flatMap((value) => [...formsOf(value)])) {
    const prefix = form.slice(0, minimumHeldLength);
    const group = forms.get(prefix);
    if (group) group.push(form);
    else forms.set(prefix, [form]);
  }
  // Longest first, so that a secret which begins with another one is hidden whole.
  for (const group of forms.values()) group.sort((a, b) => b.length - a.length);
  return forms;
}

/**
 * Returns a function that searches for the next position at which one of the prefixes may begin; -1 if there
 * is none. Written out for speed, because it reads every line of the log.
 */
function createPrefixSearch(prefixes: readonly string[]): (text: string, start: number) => number {
  /** 1 for the hash of the first four characters of each prefix. */
  const slots = new Uint8Array(1 << 16);
  for (const prefix of prefixes) {
    const slot = slotOf(
      prefix.charCodeAt(0),
      prefix.charCodeAt(1),
      prefix.charCodeAt(2),
      prefix.charCodeAt(3),
    );
    slots[slot] = 1;
  }
  return (text, start) => {
    const end = text.length - minimumHeldLength;
    if (start > end) return -1;
    let firstCode = text.charCodeAt(start);
    let secondCode = text.charCodeAt(start + 1);
    let thirdCode = text.charCodeAt(start + 2);
    for (let position = start; position <= end; position += 1) {
      const fourthCode = text.charCodeAt(position + 3);
      if (slots[slotOf(firstCode, secondCode, thirdCode, fourthCode)] !== 0) return position;
      firstCode = secondCode;
      secondCode = thirdCode;
      thirdCode = fourthCode;
    }
    return -1;
  };
}

/** A 16-bit hash of four characters. */
function slotOf(firstCode: number, secondCode: number, thirdCode: number, fourthCode: number): number {
  const product = Math.imul(firstCode, 0x9e35) ^ Math.imul(secondCode, 0x85eb) ^ Math.imul(thirdCode, 0x1b87);
  return (product ^ (fourthCode * 31)) & 0xffff;
}

function shapesIn(text: string): Span[] {
  const spans: Span[] = [];
  for (const match of text.matchAll(knownShapes)) {
    // The group is the word `Bearer`, which stays visible before its credential.
    spans.push([match.index + (match[1]?.length ?? 0), match.index + match[0].length]);
  }
  return spans;
}

/** The text with each stretch of overlapping spans replaced by one word. */
function withoutSpans(text: string, spans: Span[]): string {
  let redactedText = '';
  let hiddenUpTo = 0;
  let openSpan: Span | undefined;
  for (const [start, end] of spans.sort(([a], [b]) => a - b)) {
    if (openSpan !== undefined && start <= openSpan[1]) {
      openSpan[1] = Math.max(openSpan[1], end);
      continue;
    }
    if (openSpan !== undefined) hiddenUpTo = openSpan[1];
    redactedText += text.slice(hiddenUpTo, start) + redactedMark;
    openSpan = [start, end];
  }
  return redactedText + text.slice(openSpan?.[1] ?? 0);
}

/** The forms of a value within a text, or within a text in a serialized document. */
function formsOf(value: string): Set<string> {
  const bytes = Buffer.from(value, 'utf8');
  const plainForms = [
    value,
    encodeURIComponent(value.toWellFormed()),
    bytes.toString('base64').replace(/=+$/, ''),
    bytes.toString('base64url'),
    bytes.toString('hex'),
  ];
  // Text that was serialized before it was logged carries the escaped form, and its
  // line escapes it once more.
  const escapedForms = plainForms.map(escapedIn);
  return new Set([...plainForms, ...escapedForms, ...escapedForms.map(escapedIn)]);
}

function escapedIn(text: string): string {
  return JSON.stringify(text).slice(1, -1);
}
