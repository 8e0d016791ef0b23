// The reasoning effort of a messages request. Clients of this format send a level with every
// call, so a model without that level runs at its nearest level, and a warning reports the change.
import type { MessageRequest } from '../../../../contract/gateway/types.gen.ts';
import { asRecord } from '../../../../kernel/json-value.ts';
import { checkEffort, type Reasoning } from '../../catalog/reasoning.ts';
import { applyEdits, topLevelMembers } from '../../upstream/json-members.ts';
import type { DroppedHints } from '../translation/dropped-hints.ts';

/** From the least reasoning to the most. */
const levels = ['none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max'];

/** The smallest budget of thinking tokens for each level. */
const budgets: readonly [tokens: number, level: string][] = [
  [16_384, 'high'],
  [4_096, 'medium'],
  [0, 'low'],
];

interface ReasoningModel {
  id: string;
  reasoning?: Reasoning | undefined;
}

/** The effort to send. Throws a 422 for a level that the format does not have. */
export function messageEffort(
  model: ReasoningModel & { providerEntry: { formats: readonly string[] } },
  body: MessageRequest,
  hints: DroppedHints,
): string | undefined {
  const requestedEffort = body.output_config?.effort ?? undefined;
  if (requestedEffort !== undefined)
    return nearestEffort(model, requestedEffort, { member: 'output_config.effort', hints });
  // A provider that supports the format reads `thinking` itself.
  if (model.providerEntry.formats.includes('messages')) return undefined;
  const { type, budget_tokens: budget } = asRecord(body['thinking']);
  if (type === 'disabled' && model.reasoning !== undefined)
    return nearestEffort(model, 'none', { member: 'thinking', hints });
  if (type !== 'enabled' || typeof budget !== 'number' || model.reasoning === undefined) return undefined;
  const level = budgets.find(([tokens]) => budget >= tokens)?.[1] ?? 'low';
  hints.add('thinking.budget_tokens', 'is sent as the nearest effort');
  return nearestEffort(model, level, { member: 'thinking.budget_tokens', hints });
}

/** Whether the caller requested the model's thinking. */
export function showsThinking(body: MessageRequest): boolean {
  const { type, display } = asRecord(body['thinking']);
  return (type === 'enabled' || type === 'adaptive') && display !== 'omitted';
}

/**
 * The model's level that is nearest to the requested level, or the lower level if two are equally near;
 * undefined for a model without reasoning efforts.
 */
export function nearestEffort(
  model: ReasoningModel,
  requested: string,
  { member, hints }: { member: string; hints: DroppedHints },
): string | undefined {
  const rank = levels.indexOf(requested);
  const ids = model.reasoning?.efforts.map(({ id }) => id) ?? [];
  if (rank < 0 || ids.includes(requested)) return checkEffort(model, requested, member);
  if (ids.length === 0) {
    hints.add(member, `${model.id} has no reasoning efforts`);
    return undefined;
  }
  // Only the level `none` may turn the reasoning off.
  const candidates = ids.filter((id) => levels.includes(id) && (id !== 'none' || ids.length === 1));
  const [closestCandidate] = candidates.toSorted(
    (a, b) =>
      Math.abs(levels.indexOf(a) - rank) - Math.abs(levels.indexOf(b) - rank) ||
      levels.indexOf(a) - levels.indexOf(b),
  );
  if (closestCandidate === undefined) return checkEffort(model, requested, member);
  hints.add(member, `${model.id} has no effort ${requested}, so it runs at ${closestCandidate}`);
  return closestCandidate;
}

/**
 * Replaces the effort in the bytes of a request, for a provider that supports the format. An undefined
 * effort becomes null.
 */
export function withEffort(rawBody: Uint8Array, effort: string | undefined): Uint8Array {
  const bytes = Buffer.from(rawBody.buffer, rawBody.byteOffset, rawBody.byteLength);
  const edits = (topLevelMembers(bytes)?.members ?? [])
    .filter(({ name }) => name === 'output_config')
    .flatMap(({ start, end }) => topLevelMembers(bytes, start, end)?.members ?? [])
    .filter(({ name }) => name === 'effort')
    .map(({ start, end }) => ({ start, end, text: JSON.stringify(effort ?? null) }));
  return applyEdits(bytes, edits);
}
