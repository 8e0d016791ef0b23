// Edits a request for a provider that supports the caller's format. The caller's
// bytes are kept, because a translation would lose members; only the model's name, a
// missing output limit and the option that requests usage are edited in place.
import { Problem } from '../../../../kernel/problem.ts';
import type { CatalogModel } from '../../catalog/catalog.ts';
import { longestOutput } from '../../metering/bound.ts';
import {
  applyEdits,
  topLevelMembers,
  type Edit,
  type Member,
  type Members,
} from '../../upstream/json-members.ts';
import { chat, type PassthroughFormat } from './formats.ts';

/** The members that the gateway reads in every format. */
export interface PassthroughBody {
  stream?: boolean | null | undefined;
  stream_options?: { include_usage?: boolean | null } | null | undefined;
}

export interface ProviderRequest {
  bytes: Buffer;
  /** The request without the gateway's request for usage; absent when the gateway does not request it. */
  bytesWithoutUsage?: () => Buffer;
  /**
   * Whether the caller requested a usage chunk. Otherwise the gateway removes the
   * chunk that it requested itself.
   */
  wantsUsage: boolean;
}

/** The request for the provider. `limit` is the reserved output limit, sent if the caller set none. */
export function buildProviderRequest(
  rawBody: Uint8Array,
  body: PassthroughBody,
  {
    model,
    format = chat,
    limit,
  }: { model: CatalogModel; format?: PassthroughFormat; limit?: number | undefined },
): ProviderRequest {
  const bytes = Buffer.from(rawBody.buffer, rawBody.byteOffset, rawBody.byteLength);
  const object = topLevelMembers(bytes);
  if (object === undefined)
    throw new Problem('bad_request', 'invalid_json', 'The body is not a JSON object.');
  const wantsUsage = !format.requestsUsage || body.stream_options?.include_usage === true;
  const edits = [
    ...modelNameEdits(object.members, model.upstream_model),
    ...outputLimitEdits(object, body, { model, format, tokens: limit ?? model.max_output_tokens }),
  ];
  if (body.stream !== true || model.providerEntry.usage !== 'ask' || wantsUsage)
    return { bytes: applyEdits(bytes, edits), wantsUsage };
  return {
    bytes: applyEdits(bytes, [...includeUsageEdits(bytes, object, body), ...edits]),
    bytesWithoutUsage: () => applyEdits(bytes, edits),
    wantsUsage,
  };
}

/** The edits that set the member `model`. */
export function modelNameEdits(members: readonly Member[], modelName: string): Edit[] {
  return members
    .filter(({ name }) => name === 'model')
    .map(({ start, end }) => ({ start, end, text: JSON.stringify(modelName) }));
}

/** The output limit of the request and the member that sets it; the highest if the request sets several. */
export function requestedOutputLimit(
  body: PassthroughBody,
  model: CatalogModel,
  format: PassthroughFormat,
): { member: string; tokens: number } | undefined {
  const { output_limit_member: providerMember } = model.providerEntry;
  const members =
    format.usesProviderLimit && providerMember !== undefined
      ? [...format.limitMembers, providerMember]
      : format.limitMembers;
  let highestLimit: { member: string; tokens: number } | undefined;
  for (const member of members) {
    const limit = (body as Record<string, unknown>)[member];
    if (limit === undefined || limit === null) continue;
    // Providers handle an invalid limit differently, so it counts as the model's longest output.
    const tokens =
      typeof limit === 'number' && limit > 0
        ? Math.min(Math.ceil(limit), Number.MAX_SAFE_INTEGER)
        : longestOutput(model);
    if (highestLimit === undefined || tokens > highestLimit.tokens) highestLimit = { member, tokens };
  }
  return highestLimit;
}

function includeUsageEdits(bytes: Buffer, object: Members, body: PassthroughBody): Edit[] {
  const options = object.members.find((member) => member.name === 'stream_options');
  if (options === undefined) return [insertMember(object, '"stream_options":{"include_usage":true}')];
  if (body.stream_options === null)
    return [{ start: options.start, end: options.end, text: '{"include_usage":true}' }];
  const innerMembers = topLevelMembers(bytes, options.start, options.end);
  // Edit every occurrence of a repeated member: parsers differ in which occurrence they use.
  const usageMembers = innerMembers?.members.filter((member) => member.name === 'include_usage') ?? [];
  if (usageMembers.length > 0) return usageMembers.map(({ start, end }) => ({ start, end, text: 'true' }));
  const insertAt = innerMembers?.bodyStart ?? options.start;
  return [
    {
      start: insertAt,
      end: insertAt,
      text: `"include_usage":true${innerMembers?.members.length ? ',' : ''}`,
    },
  ];
}

// The caller's limit is never lowered. Without a limit, the provider's default could exceed the reservation.
// A provider without `output_limit_member` needs no limit in any format.
function outputLimitEdits(
  object: Members,
  body: PassthroughBody,
  { model, format, tokens }: { model: CatalogModel; format: PassthroughFormat; tokens: number | null },
): Edit[] {
  const { output_limit_member: providerMember } = model.providerEntry;
  const name = format.usesProviderLimit ? providerMember : format.limitMembers[0];
  if (providerMember === undefined || name === undefined || tokens === null) return [];
  if (requestedOutputLimit(body, model, format) !== undefined) return [];
  const existing = object.members.find((member) => member.name === name);
  return existing === undefined
    ? [insertMember(object, `${JSON.stringify(name)}:${tokens}`)]
    : [{ start: existing.start, end: existing.end, text: String(tokens) }];
}

// New members go first. The contract requires members of every format, so a comma always has to follow.
function insertMember(object: Members, text: string): Edit {
  return { start: object.bodyStart, end: object.bodyStart, text: `${text},` };
}
