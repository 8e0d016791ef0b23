// Recognizes an event that differs from an earlier event only in its text, as most
// events of a stream do. Only the bytes around the text are compared, which costs a
// fifth of parsing the event (docs/decisions/2026-11-22-processor-time.md).
import { isUtf8 } from 'node:buffer';
import type { EventText } from './event-texts.ts';
import type { Member } from './json-members.ts';

/** A matching event: the offset of its end, and the length of its text in bytes. */
export interface EventMatch {
  end: number;
  textBytes: number;
}

/** The offsets of a string between its quotes. */
interface TextRange {
  start: number;
  end: number;
}

const lf = 0x0a;
const quote = 0x22;
const backslash = 0x5c;
// OpenAI pads each event with random text to hide the length of its content.
const paddingMember = 'obfuscation';

/** The bytes of one event and the ranges in which another event may differ from it. */
export class EventPattern {
  /** The event that the pattern was taken from, and the members of its data. */
  readonly bytes: Buffer;
  readonly members: readonly Member[];
  readonly isReasoning: boolean;
  /** The ranges in the order of their offsets; the first one is the text. */
  readonly #ranges: readonly TextRange[];

  private constructor(bytes: Buffer, members: readonly Member[], { isReasoning, ...text }: EventText) {
    this.members = members;
    this.isReasoning = isReasoning;
    this.bytes = bytes;
    const padding = members.find(
      ({ name, start }) => name === paddingMember && start > text.end && bytes[start] === quote,
    );
    this.#ranges =
      padding === undefined ? [text] : [text, { start: padding.start + 1, end: padding.end - 1 }];
  }

  /** The pattern of an event with exactly one text; undefined for an event with none or several. */
  static of(
    bytes: Buffer,
    members: readonly Member[],
    texts: readonly EventText[],
  ): EventPattern | undefined {
    const [text, secondText] = texts;
    if (text === undefined || secondText !== undefined) return undefined;
    // With other line ends, the LF of the last CRLF may still be in the next piece of the stream.
    const endsWithLines = bytes.at(-1) === lf && bytes.at(-2) === lf;
    return endsWithLines ? new EventPattern(bytes, members, text) : undefined;
  }

  /**
   * The offset at which the text begins. Members before this offset have the same offsets in every
   * event that matches the pattern.
   */
  get textStart(): number {
    return (this.#ranges[0] as TextRange).start;
  }

  /**
   * The event of this pattern that begins at the offset; undefined for another
   * event or an incomplete one.
   */
  match(source: Buffer, matchStart: number): EventMatch | undefined {
    let offset = matchStart;
    let comparedTo = 0;
    let textBytes = -1;
    for (const { start, end } of this.#ranges) {
      const length = start - comparedTo;
      if (!this.#isSame(source, offset, comparedTo, length)) return undefined;
      offset += length;
      comparedTo = end;
      const textEnd = plainTextEnd(source, offset);
      if (textEnd < 0) return undefined;
      if (textBytes < 0) textBytes = textEnd - offset;
      offset = textEnd;
    }
    const length = this.bytes.length - comparedTo;
    return this.#isSame(source, offset, comparedTo, length) ? { end: offset + length, textBytes } : undefined;
  }

  #isSame(source: Buffer, offset: number, patternOffset: number, length: number): boolean {
    return (
      offset + length <= source.length &&
      source.compare(this.bytes, patternOffset, patternOffset + length, offset, offset + length) === 0
    );
  }
}

/** The offset of the quote that ends a string without escapes; -1 for any other string. */
function plainTextEnd(source: Buffer, start: number): number {
  let allBits = 0;
  for (let offset = start; offset < source.length; offset += 1) {
    const byte = source[offset] as number;
    if (byte === quote) return allBits < 0x80 || isUtf8(source.subarray(start, offset)) ? offset : -1;
    if (byte === backslash || byte < 0x20) return -1;
    allBits |= byte;
  }
  return -1;
}
