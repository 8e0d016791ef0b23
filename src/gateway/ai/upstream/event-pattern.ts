// Recognizes an event that differs from an earlier one in its text alone, as most
// events of a stream do. Only the bytes around the text are compared, which costs a
// fifth of parsing the event (docs/decisions/2026-11-22-processor-time.md).
import { isUtf8 } from 'node:buffer';
import type { EventText } from './event-texts.ts';
import type { Member } from './json-members.ts';

/** A matching event, by the offset of its end and the bytes of its text. */
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

  /** The pattern of an event with one text; undefined for any other. */
  static of(
    bytes: Buffer,
    members: readonly Member[],
    texts: readonly EventText[],
  ): EventPattern | undefined {
    const [text, second] = texts;
    if (text === undefined || second !== undefined) return undefined;
    // With other line ends, a part of the event's end may still be in the next piece of the stream.
    const endsWithLines = bytes.at(-1) === lf && bytes.at(-2) === lf;
    return endsWithLines ? new EventPattern(bytes, members, text) : undefined;
  }

  /**
   * The offset at which the text begins. Offsets of members before it hold for every event of the
   * pattern.
   */
  get textStart(): number {
    return (this.#ranges[0] as TextRange).start;
  }

  /**
   * The event of this pattern that begins at the offset; undefined for another event or an incomplete one.
   */
  match(source: Buffer, from: number): EventMatch | undefined {
    let at = from;
    let copiedTo = 0;
    let textBytes = -1;
    for (const { start, end } of this.#ranges) {
      const length = start - copiedTo;
      if (!this.#isSame(source, at, copiedTo, length)) return undefined;
      at += length;
      copiedTo = end;
      const textEnd = plainTextEnd(source, at);
      if (textEnd < 0) return undefined;
      if (textBytes < 0) textBytes = textEnd - at;
      at = textEnd;
    }
    const length = this.bytes.length - copiedTo;
    return this.#isSame(source, at, copiedTo, length) ? { end: at + length, textBytes } : undefined;
  }

  #isSame(source: Buffer, at: number, from: number, length: number): boolean {
    return (
      at + length <= source.length && source.compare(this.bytes, from, from + length, at, at + length) === 0
    );
  }
}

/** The offset of the quote that ends a text without escapes; -1 for any other text. */
function plainTextEnd(source: Buffer, from: number): number {
  let allBits = 0;
  for (let at = from; at < source.length; at += 1) {
    const byte = source[at] as number;
    if (byte === quote) return allBits < 0x80 || isUtf8(source.subarray(from, at)) ? at : -1;
    if (byte === backslash || byte < 0x20) return -1;
    allBits |= byte;
  }
  return -1;
}
