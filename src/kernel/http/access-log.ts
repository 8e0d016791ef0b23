// The log line of one request.
import type { CallNote } from '../contract/operation.ts';
import type { HttpRequest } from './request.ts';

/** Ids that identify the caller in a log line; never a credential. */
export type NameIdentity = (identity: { kind: string }) => Record<string, string>;

export function accessFields(
  request: HttpRequest,
  durationMs: number,
  nameIdentity: NameIdentity | undefined,
): Record<string, unknown> {
  const { operation, identity, notes, trace } = request;
  const fields: Record<string, unknown> = {
    requestId: request.requestId,
    method: request.method,
    operationId: operation?.handlerId,
    path: loggedPath(request),
    status: request.response.statusCode,
    ms: roundToTenths(durationMs),
    identity: identity?.kind,
    bytesIn: request.bytesIn,
    bytesOut: request.bytesOut,
  };
  if (identity && nameIdentity) Object.assign(fields, nameIdentity(identity));
  if (notes) Object.assign(fields, noteFields(notes));
  if (trace) fields['traceId'] = trace.traceId;
  if (request.isClientGone) fields['clientGone'] = true;
  return fields;
}

// The id of the operation identifies its path, except for an alias, whose line has the id of its target.
function loggedPath({ operation, path }: HttpRequest): string | undefined {
  if (operation === undefined) return path.slice(0, 256);
  return operation.handlerId === operation.operationId ? undefined : operation.path;
}

/** The note of a call as flat members, because the log has to copy nested objects. */
export function noteFields({
  tokens,
  credits,
  upstreamMs,
  ttftMs,
  ...rest
}: CallNote): Record<string, unknown> {
  return {
    ...rest,
    inputTokens: tokens?.input,
    cachedInputTokens: tokens?.cachedInput,
    cacheWriteTokens: tokens?.cacheWrite,
    outputTokens: tokens?.output,
    reasoningTokens: tokens?.reasoning,
    credits: credits === undefined ? undefined : Number(credits),
    upstreamMs: upstreamMs === undefined ? undefined : roundToTenths(upstreamMs),
    ttftMs: ttftMs === undefined ? undefined : roundToTenths(ttftMs),
  };
}

function roundToTenths(ms: number): number {
  return Math.round(ms * 10) / 10;
}
