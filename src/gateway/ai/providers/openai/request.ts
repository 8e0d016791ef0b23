// Requests of OpenAI's media formats. They are few and small, so they are written
// here: the SDK package would drop unknown members.
import { maxAnswerBytes, type Upstream, type UpstreamAnswer } from '../../upstream/client.ts';
import { readAll } from '../../upstream/response-body.ts';
import { topLevelMembers } from '../../upstream/json-members.ts';
import type { ModelAccess } from '../adapter/model-access.ts';
import { upstreamFailed } from '../../hub/problems.ts';

export interface MediaRequest {
  /** The path below the provider's base URL. */
  path: string;
  body: string | Uint8Array;
  headers?: Readonly<Record<string, string>>;
  signal: AbortSignal;
}

export function sendMediaRequest(
  { upstream, baseUrl, apiKey, authorizer, idleMs, firstMs }: ModelAccess,
  { path, ...request }: MediaRequest,
): ReturnType<Upstream['send']> {
  const url = `${baseUrl}${path}`;
  return upstream.send({ url, apiKey, authorizer, idleMs, firstMs, ...request, streams: false });
}

/** The parsed answer. Throws a 502 for anything but a JSON object. */
export async function readJsonAnswer(answer: UpstreamAnswer): Promise<unknown> {
  const bytes = await readAll(answer.body, maxAnswerBytes);
  if (topLevelMembers(bytes) === undefined)
    throw upstreamFailed(
      'The model provider answered with something that is not a JSON object, or that has too many parts.',
    );
  try {
    return JSON.parse(bytes.toString('utf8'));
  } catch (cause) {
    throw upstreamFailed('The model provider answered with something that is not JSON.', cause);
  }
}
