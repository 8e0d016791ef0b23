// The meter at work on a format that passes through as bytes: it finds what the provider says of its usage, and counts
// the text of each event where it lies, without reading the event as a whole.
import type { ForeignFormat } from './foreign-format.ts';
import { topLevelMembers, type Member } from '../upstream/json-members.ts';
import type { ProviderEvent } from '../upstream/events.ts';
import type { Meter } from '../metering/meter.ts';
import { noTokens } from '../metering/price.ts';

/** Sees each event of one stream. */
export function eventMeter({ usageMember, usageIn, readClaim, spokenIn }: ForeignFormat, meter: Meter): (event: ProviderEvent) => void {
  let usage: Record<string, unknown> = {};

  function told(bytes: Buffer, member: Member | undefined, isFinal: boolean): void {
    // `null` says nothing yet.
    if (member === undefined || bytes[member.start] !== openBrace) return;
    for (const [name, value] of Object.entries(parsed(bytes, member))) if (value !== null) usage = { ...usage, [name]: value };
    const claim = readClaim(usage);
    meter.claims(claim === undefined || claim === 'faulty' ? claim : { ...claim, isFinal });
  }

  return ({ bytes, data }) => {
    if (data.kind !== 'object') return;
    for (const member of data.members) {
      if (member.name === usageMember) told(bytes, member, true);
      else if (member.name === usageIn?.member) {
        const inner = topLevelMembers(bytes, member.start, member.end)?.members.find(({ name }) => name === usageMember);
        told(bytes, inner, usageIn.isFinal);
      } else if (spokenIn.includes(member.name)) countText(bytes, member, data.members, meter);
    }
  };
}

/** Tells the meter of a whole answer. */
export function meterWhole({ usageMember, readClaim, spokenIn, hasFailed }: ForeignFormat, value: Readonly<Record<string, unknown>>, meter: Meter): void {
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

const openBrace = 0x7b;
const quote = 0x22;
const backslash = 0x5c;

// The members of the formats that hold text of a model, up to the text's first character. The text itself is not left
// to the expression, whose stack a long one would exhaust.
const spoken = /"(content|text|refusal|arguments|partial_json|reasoning_content|reasoning|thinking)"\s*:\s*"/g;
const thought = /^(?:reasoning|thinking)/;

function countText(bytes: Buffer, { start, end }: Member, siblings: readonly Member[], meter: Meter): void {
  if (bytes[start] === quote) {
    // A bare delta; what it is a part of is said beside it.
    const type = siblings.find(({ name }) => name === 'type');
    const isThought = type !== undefined && bytes.toString('latin1', type.start, type.end).includes('reasoning');
    meter.produced(isThought ? 'reasoning' : 'output', end - start - 2);
    return;
  }
  let reasoned = false;
  const said = bytes.toString('latin1', start, end);
  spoken.lastIndex = 0;
  for (let found = spoken.exec(said); found !== null; found = spoken.exec(said)) {
    const from = spoken.lastIndex;
    const to = textEnd(said, from);
    spoken.lastIndex = to + 1;
    if (to === from) continue;
    const isThought = thought.test(found[1] ?? '');
    // Some send the same thought under both of its names.
    if (isThought && reasoned) continue;
    reasoned ||= isThought;
    meter.produced(isThought ? 'reasoning' : 'output', to - from);
  }
}

function textEnd(said: string, from: number): number {
  for (let at = from; at < said.length; at += 1) {
    const sign = said.charCodeAt(at);
    if (sign === quote) return at;
    if (sign === backslash) at += 1;
  }
  return said.length;
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
