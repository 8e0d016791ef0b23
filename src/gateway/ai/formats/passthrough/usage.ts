// The meter at work on a format that passes through as bytes: it finds what the provider says of its usage, and counts
// the text of each event where it lies, without reading the event as a whole.
import type { PassthroughFormat } from './format.ts';
import { topLevelMembers, type Member } from '../../upstream/json-members.ts';
import { completesAnswer, type ProviderEvent } from '../../upstream/events.ts';
import type { Meter } from '../../metering/meter.ts';
import { noTokens } from '../../metering/price.ts';

/** Sees each event of one stream. */
export function createEventMeter(
  { usageMember, nestedUsage: usageIn, readClaim, textMembers: spokenIn, endRule }: PassthroughFormat,
  meter: Meter,
): (event: ProviderEvent) => void {
  const usage: Record<string, unknown> = {};
  let usageMembers = 0;

  function told(bytes: Buffer, member: Member | undefined, isFinal: boolean): void {
    // `null` says nothing yet.
    if (member === undefined || bytes[member.start] !== openBrace) return;
    for (const [name, value] of Object.entries(parsed(bytes, member))) {
      if (value === null) continue;
      if (!Object.hasOwn(usage, name) && ++usageMembers > mostUsageMembers) break;
      usage[name] = value;
    }
    const claim = readClaim(usage);
    meter.claims(claim === undefined || claim === 'faulty' ? claim : { ...claim, isFinal });
  }

  return (event) => {
    const { bytes, data } = event;
    if (data.kind !== 'object') return;
    for (const member of data.members) {
      if (member.name === usageMember) told(bytes, member, true);
      else if (member.name === usageIn?.member) {
        const inner = topLevelMembers(bytes, member.start, member.end)?.members.find(
          ({ name }) => name === usageMember,
        );
        told(bytes, inner, usageIn.isFinal);
      } else if (spokenIn.includes(member.name)) countText(bytes, member, data.members, meter);
    }
    if (completesAnswer(event, endRule)) meter.completed();
  };
}

/** Tells the meter of a whole answer. */
export function meterPassthroughAnswer(
  { usageMember, readClaim, textMembers: spokenIn, hasFailed }: PassthroughFormat,
  value: Readonly<Record<string, unknown>>,
  meter: Meter,
): void {
  // Some tell what they bill under another name.
  const usage = { ...object(value['meta']), ...object(value[usageMember]) };
  const claim = readClaim(usage);
  // What came to nothing costs what the provider says, and otherwise nothing.
  meter.claims(claim ?? (hasFailed?.(value) === true ? { tokens: noTokens, isFinal: true } : undefined));
  if (claim === undefined) {
    const bytes = Buffer.from(JSON.stringify(value));
    const members = topLevelMembers(bytes)?.members ?? [];
    for (const member of members) if (spokenIn.includes(member.name)) countText(bytes, member, [], meter);
  }
  // The moment of the answer is also that of its first piece.
  meter.produced('output', 0);
}

// The formats have a dozen. What a provider sends beyond is not gathered over the events of a stream.
const mostUsageMembers = 1_000;

const openBrace = 0x7b;
const quote = 0x22;
const backslash = 0x5c;

// The members of the formats that hold text of a model, up to the text's first character. The text itself is not left
// to the expression, whose stack a long one would exhaust.
const spoken =
  /"(content|text|refusal|arguments|partial_json|reasoning_content|reasoning|thinking)"\s*:\s*"/g;
const thought = /^(?:reasoning|thinking)/;

function countText(bytes: Buffer, { start, end }: Member, siblings: readonly Member[], meter: Meter): void {
  const source = bytes.toString('latin1', start, end);
  if (bytes[start] === quote) {
    // A bare delta; what it is a part of is said beside it.
    const type = siblings.find(({ name }) => name === 'type');
    const isThought =
      type !== undefined && bytes.toString('latin1', type.start, type.end).includes('reasoning');
    meter.produced(isThought ? 'reasoning' : 'output', readText(source, 1).bytes);
    return;
  }
  let reasoned = false;
  spoken.lastIndex = 0;
  for (let found = spoken.exec(source); found !== null; found = spoken.exec(source)) {
    const text = readText(source, spoken.lastIndex);
    spoken.lastIndex = text.end + 1;
    if (text.bytes === 0) continue;
    const isThought = thought.test(found[1] ?? '');
    // Some send the same thought under both of its names.
    if (isThought && reasoned) continue;
    reasoned ||= isThought;
    meter.produced(isThought ? 'reasoning' : 'output', text.bytes);
  }
}

// A text from its first character to the closing quote, and its bytes in UTF-8 without the escapes of JSON.
function readText(said: string, from: number): { end: number; bytes: number } {
  let bytes = 0;
  for (let at = from; at < said.length; at += 1) {
    const sign = said.charCodeAt(at);
    if (sign === quote) return { end: at, bytes };
    bytes += 1;
    if (sign !== backslash) continue;
    at += 1;
    if (said[at] !== 'u') continue;
    bytes += bytesOfUnit(Number.parseInt(said.slice(at + 1, at + 5), 16)) - 1;
    at += 4;
  }
  return { end: said.length, bytes };
}

// Each half of a surrogate pair is two of the four bytes.
function bytesOfUnit(unit: number): number {
  if (unit < 0x80) return 1;
  return unit < 0x800 || (unit >= 0xd800 && unit <= 0xdfff) ? 2 : 3;
}

function parsed(bytes: Buffer, { start, end }: Member): Record<string, unknown> {
  try {
    return object(JSON.parse(bytes.toString('utf8', start, end)));
  } catch {
    return {};
  }
}

function object(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
}
