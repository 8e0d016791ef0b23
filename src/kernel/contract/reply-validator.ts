// Validates replies and error bodies against the contract, in tests. A mismatch
// becomes a 500 that names the operation.
import type { JsonRecord } from '../json-value.ts';
import { type ContractOperation, declaredResponse } from './operations.ts';
import type { AnyReply } from './reply.ts';
import type { CompiledSchema } from './validator.ts';

export interface ReplyValidator {
  /**
   * Returns the reply, whose events are checked as they are read. Throws for a reply
   * that the operation does not declare.
   */
  checkedReply(operation: ContractOperation, reply: AnyReply): AnyReply;
  /** The first way in which a JSON body differs from the declared schema; null when it matches. */
  jsonMismatch(operation: ContractOperation, status: number, body: unknown): string | null;
}

// HTTP's own headers for the connection and the body; OpenAPI describes the media type elsewhere.
const transportHeaders = new Set(['connection', 'content-length', 'content-type']);

/** The undeclared headers for the status, as text; null when all are declared. */
export function headerMismatch(
  operation: ContractOperation,
  status: number,
  headers: Record<string, string>,
): string | null {
  const response = declaredResponse(operation, status);
  // The document does not list the headers of a status that is only passed through.
  if (response === undefined && operation.passthrough) return null;
  const declaredNames = new Set(Object.keys(response?.headers ?? {}).map((name) => name.toLowerCase()));
  const undeclaredNames = Object.keys(headers).filter(
    (name) => !declaredNames.has(name) && !transportHeaders.has(name),
  );
  if (undeclaredNames.length === 0) return null;
  return `${operation.operationId} does not declare for ${status} the headers ${undeclaredNames.join(', ')}`;
}

export function createReplyValidator(compile: (schema: JsonRecord) => CompiledSchema): ReplyValidator {
  const valueMismatch = createValueCheck(compile);
  const jsonMismatch: ReplyValidator['jsonMismatch'] = (operation, status, body) =>
    valueMismatch(operation, { status, mediaType: 'application/json' }, body);

  return {
    jsonMismatch,
    checkedReply(operation, reply) {
      if (operation.passthrough && reply.content !== undefined) return reply;
      requireMatch(replyMismatch(operation, reply, jsonMismatch));
      const { events, status } = reply;
      if (events === undefined) return reply;
      const check = (data: unknown) =>
        requireMatch(valueMismatch(operation, { status, mediaType: 'text/event-stream' }, data));
      return { ...reply, events: checkEvents(events, check) };
    },
  };
}

type ValueCheck = (
  operation: ContractOperation,
  content: { status: number; mediaType: string },
  value: unknown,
) => string | null;

/** Compiles each schema when a value is first checked against it. */
function createValueCheck(compile: (schema: JsonRecord) => CompiledSchema): ValueCheck {
  const schemas = new Map<string, CompiledSchema>();
  return (operation, { status, mediaType }, value) => {
    const { operationId } = operation;
    const schema = declaredResponse(operation, status)?.content?.[mediaType]?.schema;
    if (schema === undefined) return `${operationId} does not declare ${mediaType} for ${status}`;
    const key = `${operationId} ${status} ${mediaType}`;
    const check = schemas.get(key) ?? compile(schema);
    schemas.set(key, check);
    // The client receives the serialized form: without undefined members, with dates as text.
    const [error] = check(JSON.parse(JSON.stringify(value ?? null)));
    if (error === undefined) return null;
    const { instancePath, keyword, params } = error;
    const reason = `${error.message ?? keyword} ${JSON.stringify(params)}`;
    return `${operationId} ${status} at ${instancePath || '/'}: ${reason}`;
  };
}

function replyMismatch(
  operation: ContractOperation,
  reply: AnyReply,
  jsonMismatch: ReplyValidator['jsonMismatch'],
): string | null {
  const { operationId } = operation;
  const { status } = reply;
  const response = declaredResponse(operation, status);
  if (!response) return `${operationId} does not declare the status ${status}`;
  if (reply.events !== undefined) return null;
  if (reply.content !== undefined) {
    const mediaType = (reply.mediaType ?? '').split(';', 1)[0]?.trim() ?? '';
    return response.content?.[mediaType]
      ? null
      : `${operationId} does not declare ${mediaType} for ${status}`;
  }
  if ('body' in reply) return jsonMismatch(operation, status, reply.body);
  return response.content ? `${operationId} declares content for ${status} and the reply has none` : null;
}

function requireMatch(reason: string | null): void {
  if (reason !== null) throw new Error(`A reply does not match the contract: ${reason}`);
}

async function* checkEvents(
  events: NonNullable<AnyReply['events']>,
  check: (data: unknown) => void,
): NonNullable<AnyReply['events']> {
  for await (const event of events) {
    check(event.data);
    yield event;
  }
}
