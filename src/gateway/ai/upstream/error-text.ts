// What a provider says in a document of a success of why there is no answer: its words go by the same rule as those of
// a refusal, so they pass where the caller can act on them, and never with a key or an address in them.
import { topLevelMembers, type Edit, type Member } from './json-members.ts';

// Failures of the provider's own, of which its words say nothing that a caller could do.
const providersOwn =
  /^(?:server_|internal|rate_limit|too_many|overload|timeout|vector_store_timeout|upstream|unavailable)/i;

const unsaid = 'The model provider failed to answer.';

/** The edits that make the error among the members ours; none where it is absent or null. */
export function redactErrorEdits(
  bytes: Buffer,
  members: readonly Member[],
  clean: (text: string) => string,
): Edit[] {
  return members
    .filter(({ name, start, end }) => name === 'error' && bytes.toString('latin1', start, end) !== 'null')
    .map(({ start, end }) => ({
      start,
      end,
      text: JSON.stringify(saidOf(bytes.toString('utf8', start, end), clean)),
    }));
}

function saidOf(json: string, clean: (text: string) => string): { code: string; message: string } {
  const { code, message, param } = membersOf(json);
  const named = typeof code === 'string' && code !== '' ? clean(code) : 'server_error';
  const words =
    typeof message === 'string' && message.trim() !== '' && !providersOwn.test(named)
      ? clean(message)
      : unsaid;
  return { code: named, message: words, ...(typeof param === 'string' ? { param: clean(param) } : {}) };
}

function membersOf(json: string): { code?: unknown; message?: unknown; param?: unknown } {
  try {
    const value: unknown = JSON.parse(json);
    return typeof value === 'object' && value !== null ? value : {};
  } catch {
    return {};
  }
}

/** The same for an event that holds the failed answer in a member of its own. */
export function redactNestedErrorEdits(
  bytes: Buffer,
  members: readonly Member[],
  clean: (text: string) => string,
): Edit[] {
  return members
    .filter(({ name }) => name === 'response')
    .flatMap(({ start, end }) =>
      redactErrorEdits(bytes, topLevelMembers(bytes, start, end)?.members ?? [], clean),
    );
}
