// Redacts errors inside of successful answers, such as a response whose generation failed. As in
// error responses, callers see the provider's message only if they can act on it, and always
// without keys and addresses.
import { asRecord, parseJsonOrUndefined } from '../../../kernel/json-value.ts';
import { topLevelMembers, type Edit, type Member } from './json-members.ts';

// Codes of failures that the caller cannot fix; the provider's message is replaced.
const providerFailure =
  /^(?:server_|internal|rate_limit|too_many|overload|timeout|vector_store_timeout|upstream|unavailable)/i;

const defaultMessage = 'The model provider failed to answer.';

/** Edits that redact the member `error`; none where it is absent or null. */
export function redactErrorEdits(
  bytes: Buffer,
  members: readonly Member[],
  redact: (text: string) => string,
): Edit[] {
  return members
    .filter(({ name, start, end }) => name === 'error' && bytes.toString('latin1', start, end) !== 'null')
    .map(({ start, end }) => ({
      start,
      end,
      text: JSON.stringify(redactError(bytes.toString('utf8', start, end), redact)),
    }));
}

function redactError(json: string, redact: (text: string) => string): { code: string; message: string } {
  const { code, message, param } = parseError(json);
  const errorCode = typeof code === 'string' && code !== '' ? redact(code) : 'server_error';
  const isActionable =
    typeof message === 'string' && message.trim() !== '' && !providerFailure.test(errorCode);
  const errorMessage = isActionable ? redact(message) : defaultMessage;
  return {
    code: errorCode,
    message: errorMessage,
    ...(typeof param === 'string' ? { param: redact(param) } : {}),
  };
}

function parseError(json: string): { code?: unknown; message?: unknown; param?: unknown } {
  return asRecord(parseJsonOrUndefined(json));
}

/** `redactErrorEdits` for an event that holds the failed answer in its member `response`. */
export function redactNestedErrorEdits(
  bytes: Buffer,
  members: readonly Member[],
  redact: (text: string) => string,
): Edit[] {
  return members
    .filter(({ name }) => name === 'response')
    .flatMap(({ start, end }) =>
      redactErrorEdits(bytes, topLevelMembers(bytes, start, end)?.members ?? [], redact),
    );
}
