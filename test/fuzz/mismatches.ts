// Compares a response with the document: its status, media type, body, headers and error code.
import type { FuzzedDocument, FuzzedOperation } from './document.ts';

export interface Answer {
  status: number;
  headers: Headers;
  text: string;
}

// Headers of the connection and the body; the document describes the media type elsewhere.
const transportHeaders = new Set([
  'connection',
  'content-length',
  'content-type',
  'date',
  'keep-alive',
  'transfer-encoding',
]);

/** The differences as text; empty when the response is as declared. */
export function findMismatches(
  document: FuzzedDocument,
  operation: FuzzedOperation,
  answer: Answer,
): string[] {
  const { status, headers, text } = answer;
  if (status === 500) return [`500: ${text.slice(0, 600)}`];
  const response = operation.responses[String(status)];
  if (response === undefined)
    return operation.isPassthrough ? [] : [`${status} is not declared: ${text.slice(0, 300)}`];
  const undeclaredHeaders = [...headers.keys()].filter(
    (name) =>
      !transportHeaders.has(name) &&
      !Object.keys(response.headers ?? {}).some((declared) => declared.toLowerCase() === name),
  );
  const mediaType = (headers.get('content-type') ?? '').split(';')[0]?.trim() ?? '';
  const media = response.content?.[mediaType];
  return [
    ...undeclaredHeaders.map((name) => `${status} carries the undeclared header ${name}`),
    ...(text !== '' && media === undefined && !operation.isPassthrough
      ? [`${status} as ${mediaType} is not declared`]
      : []),
    ...(mediaType === 'application/json' && text !== ''
      ? findBodyMismatches(document, operation, answer)
      : []),
  ];
}

function findBodyMismatches(
  document: FuzzedDocument,
  operation: FuzzedOperation,
  { status, text }: Answer,
): string[] {
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch {
    return [`${status} is not JSON: ${text.slice(0, 200)}`];
  }
  const schema = operation.responses[String(status)]?.content?.['application/json']?.schema;
  const error = schema === undefined ? null : document.check(schema, body);
  const code = errorCodeOf(body);
  return [
    ...(error === null ? [] : [`${status} does not match its schema: ${error} in ${text.slice(0, 400)}`]),
    ...(status >= 400 && code !== undefined ? findCodeMismatches(document, operation, { status, code }) : []),
  ];
}

/** Our error code. Google's shape has it as `reason`, because `code` is the status there. */
function errorCodeOf(body: unknown): string | undefined {
  const { error } = (body ?? {}) as { error?: { code?: unknown; details?: { reason?: string }[] } };
  return typeof error?.code === 'number' ? error.details?.[0]?.reason : (error?.code as string | undefined);
}

function findCodeMismatches(
  document: FuzzedDocument,
  { errorCodes, isPassthrough }: FuzzedOperation,
  { status, code }: { status: number; code: string },
): string[] {
  if (isPassthrough) return [];
  if (!errorCodes.includes(code)) return [`the error code ${code} is not listed`];
  return document.statusesOf(code).includes(status) ? [] : [`${code} does not have the status ${status}`];
}
