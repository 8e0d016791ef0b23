// Counts answers that pass through as bytes for their bill: reads the usage that the
// provider reports, and counts the text of events in place, without parsing them.
import { asRecord, parseJsonOrUndefined } from '../../../../kernel/json-value.ts';
import type { PassthroughFormat } from './formats.ts';
import { topLevelMembers, type Member } from '../../upstream/json-members.ts';
import { findTexts } from '../../upstream/event-texts.ts';
import { completesAnswer, type ProviderEvent } from '../../upstream/events.ts';
import type { Bill } from '../../billing/bill.ts';
import { noTokens } from '../../metering/price.ts';

/** Returns a function for the events of one stream, in order. */
export function createEventCounter(
  { usageMember, nestedUsage, readClaim, endRule }: PassthroughFormat,
  bill: Bill,
): (event: ProviderEvent) => void {
  const usage: Record<string, unknown> = {};
  let usageMembers = 0;

  // Formats send their counts in parts over several events, so they are merged before they are read.
  function addUsage(bytes: Buffer, member: Member | undefined, isFinal: boolean): void {
    // Chunks before the last have `"usage": null`.
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
    // The event differs from an earlier one only in its text; the earlier event had the other counted values.
    if (data.kind === 'like') return countText(bill, data.pattern.isReasoning, data.textBytes);
    if (data.kind !== 'object') return;
    for (const member of data.members) {
      if (member.name === usageMember) addUsage(bytes, member, true);
      else if (member.name === nestedUsage?.member) {
        const nestedMember = topLevelMembers(bytes, member.start, member.end)?.members.find(
          ({ name }) => name === usageMember,
        );
        addUsage(bytes, nestedMember, nestedUsage.isFinal);
      }
    }
    for (const text of data.texts) countText(bill, text.isReasoning, text.bytes);
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
  // Without usage, or with an impossible one, the bill charges the gateway's own count.
  if (claim === undefined || claim === 'faulty') {
    const bytes = Buffer.from(JSON.stringify(value));
    const members = topLevelMembers(bytes)?.members ?? [];
    for (const text of findTexts(bytes, members, textMembers)) countText(bill, text.isReasoning, text.bytes);
  }
  // Records the arrival of the whole answer as the time of its first output.
  bill.countText('output', 0);
}

// The formats have about 12 members of usage. The bound keeps a faulty provider from
// growing the merged object without limit.
const maxUsageMembers = 1_000;

const openBrace = 0x7b;

function countText(bill: Bill, isReasoning: boolean, bytes: number): void {
  bill.countText(isReasoning ? 'reasoning' : 'output', bytes);
}

function parseObject(bytes: Buffer, { start, end }: Member): Record<string, unknown> {
  return asRecord(parseJsonOrUndefined(bytes.toString('utf8', start, end)));
}
