// Makes one call in a tool's format, to prove that the written configuration works.
import type { CallFormat, Connection } from './tool.ts';

const prompt = 'Reply with the word OK.';
const timeoutMs = 60_000;
const maxTokens = 64;

type TestRequest = { path: string; headers: Record<string, string>; body: object };

const requests: Readonly<Record<CallFormat, (connection: Connection) => TestRequest>> = {
  messages: ({ model, token }) => ({
    path: '/v1/messages',
    headers: { authorization: `Bearer ${token}`, 'anthropic-version': '2023-06-01' },
    body: { model, max_tokens: maxTokens, messages: [{ role: 'user', content: prompt }] },
  }),
  responses: ({ model, token }) => ({
    path: '/v1/responses',
    headers: { authorization: `Bearer ${token}` },
    body: { model, input: prompt, max_output_tokens: maxTokens },
  }),
  'chat-completions': ({ model, token }) => ({
    path: '/v1/chat/completions',
    headers: { authorization: `Bearer ${token}` },
    body: { model, messages: [{ role: 'user', content: prompt }], max_tokens: maxTokens },
  }),
  gemini: ({ model, token }) => ({
    path: `/v1beta/models/${model}:generateContent`,
    headers: { 'x-goog-api-key': token },
    body: {
      contents: [{ role: 'user', parts: [{ text: prompt }] }],
      generationConfig: { maxOutputTokens: maxTokens },
    },
  }),
};

/** Returns the path and the duration of the call. Throws an error with the server's message. */
export async function makeTestCall(
  format: CallFormat,
  connection: Connection,
  signal: AbortSignal,
): Promise<{ path: string; durationMs: number }> {
  const { path, headers, body } = requests[format](connection);
  const startedAtMs = performance.now();
  const response = await fetch(connection.url + path, {
    method: 'POST',
    headers: { ...headers, 'content-type': 'application/json' },
    body: JSON.stringify(body),
    signal: AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)]),
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`${path} answered ${response.status}: ${messageOf(text)}`);
  return { path, durationMs: Math.round(performance.now() - startedAtMs) };
}

function messageOf(text: string): string {
  try {
    const { error } = JSON.parse(text) as { error: { message: string } };
    return error.message;
  } catch {
    return text.slice(0, 200);
  }
}
