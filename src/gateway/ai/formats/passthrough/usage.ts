// Counts answers that pass through as bytes for their bill: reads the usage that the provider reports, and counts the
// text of events in place, without parsing them.
import { asRecord, parseJsonOrUndefined } from '../../../../kernel/json-value.ts';
import type { PassthroughFormat } from './formats.ts';
import { topLevelMembers, type Member } from '../../upstream/json-members.ts';
import { completesAnswer, type ProviderEvent } from '../../upstream/events.ts';
import type { Bill } from '../../billing/bill.ts';
import { noTokens } from '../../metering/price.ts';

/** Returns a function for the events of one stream, in order. */
export function createEventCounter(
  { usageMember, nestedUsage, readClaim, textMembers, endRule }: PassthroughFormat,
  bill: Bill,
): (event: ProviderEvent) => void {
  const usage: Record<string, unknown> = {};
  let usageMembers = 0;

  // Formats send their counts in parts over several events, so they are merged before they are read.
  function addUsage(bytes: Buffer, member: Member | undefined, isFinal: boolean): void {
    // `"usage": null` stands in chunks before the last.
    if (member === undefined || bytes[member.start] !== openBrace) return;
    for (const [name, value] of Object.entries(parseObject(bytes, member))) {
      if (value === null) continue;
      if (!Object.hasOwn(usage, name) && ++usageMembers > maxUsageMembers) break;
      usage[name] = value;
    }
    const claim = readClaim(usage);
    bill.recordUsage(claim === undefined || claim === 'faulty' ? claim : { ...claim, isFinal });
  }

  return (event) => {
    const { bytes, data } = event;
    if (data.kind !== 'object') return;
    for (const member of data.members) {
      if (member.name === usageMember) addUsage(bytes, member, true);
      else if (member.name === nestedUsage?.member) {
        const nested = topLevelMembers(bytes, member.start, member.end)?.members.find(
          ({ name }) => name === usageMember,
        );
        addUsage(bytes, nested, nestedUsage.isFinal);
      } else if (textMembers.includes(member.name)) countText(bytes, member, data.members, bill);
    }
    if (completesAnswer(event, endRule)) bill.markComplete();
  };
}

/** Counts a whole answer. */
export function countPassthroughAnswer(
  { usageMember, readClaim, textMembers, hasFailed }: PassthroughFormat,
  value: Readonly<Record<string, unknown>>,
  bill: Bill,
): void {
  // Some rerank servers report their billed units in `meta`.
  const claim = readClaim({ ...asRecord(value['meta']), ...asRecord(value[usageMember]) });
  // A failed answer costs what the provider reports, and nothing if it reports no usage.
  bill.recordUsage(claim ?? (hasFailed?.(value) === true ? { tokens: noTokens, isFinal: true } : undefined));
  if (claim === undefined) {
    const bytes = Buffer.from(JSON.stringify(value));
    const members = topLevelMembers(bytes)?.members ?? [];
    for (const member of members) if (textMembers.includes(member.name)) countText(bytes, member, [], bill);
  }
  // A whole answer is also its own first piece, for the time to the first output.
  bill.countText('output', 0);
}

// The formats have about 12 members of usage. The bound keeps a provider from growing the merged object without end.
const maxUsageMembers = 1_000;

const openBrace = 0x7b;
const quote = 0x22;
const backslash = 0x5c;

// Matches the members of all formats that hold text of a model, up to the first character of the text. The text itself is
// scanned by readText: a regular expression would exhaust its stack on a long one.
const textMember =
  /"(content|text|refusal|arguments|partial_json|reasoning_content|reasoning|thinking)"\s*:\s*"/g;
const reasoningMember = /^(?:reasoning|thinking)/;

function countText(bytes: Buffer, { start, end }: Member, siblings: readonly Member[], bill: Bill): void {
  const source = bytes.toString('latin1', start, end);
  if (bytes[start] === quote) {
    // A delta that is a plain string; the event's type says whether it is reasoning.
    const type = siblings.find(({ name }) => name === 'type');
    const isReasoning =
      type !== undefined && bytes.toString('latin1', type.start, type.end).includes('reasoning');
    bill.countText(isReasoning ? 'reasoning' : 'output', readText(source, 1).bytes);
    return;
  }
  let hasReasoning = false;
  textMember.lastIndex = 0;
  for (let match = textMember.exec(source); match !== null; match = textMember.exec(source)) {
    const text = readText(source, textMember.lastIndex);
    textMember.lastIndex = text.end + 1;
    if (text.bytes === 0) continue;
    const isReasoning = reasoningMember.test(match[1] ?? '');
    // Some servers repeat the same reasoning under `reasoning` and `reasoning_content`.
    if (isReasoning && hasReasoning) continue;
    hasReasoning ||= isReasoning;
    bill.countText(isReasoning ? 'reasoning' : 'output', text.bytes);
  }
}

// Scans a JSON string from its first character to the closing quote; `bytes` is its length as unescaped UTF-8.
function readText(source: string, from: number): { end: number; bytes: number } {
  let bytes = 0;
  for (let at = from; at < source.length; at += 1) {
    const code = source.charCodeAt(at);
    if (code === quote) return { end: at, bytes };
    bytes += 1;
    if (code !== backslash) continue;
    at += 1;
    if (source[at] !== 'u') continue;
    bytes += utf8Bytes(Number.parseInt(source.slice(at + 1, at + 5), 16)) - 1;
    at += 4;
  }
  return { end: source.length, bytes };
}

// Each half of a surrogate pair counts as two of the pair's four bytes.
function utf8Bytes(codeUnit: number): number {
  if (codeUnit < 0x80) return 1;
  return codeUnit < 0x800 || (codeUnit >= 0xd800 && codeUnit <= 0xdfff) ? 2 : 3;
}

function parseObject(bytes: Buffer, { start, end }: Member): Record<string, unknown> {
  return asRecord(parseJsonOrUndefined(bytes.toString('utf8', start, end)));
}
