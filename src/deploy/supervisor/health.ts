// Health checks of a gateway, at an address or at a Unix socket.
import { type ClientRequest, type IncomingMessage, request } from 'node:http';
import { request as requestSecurely } from 'node:https';

/** An address such as `http://127.0.0.1:43127`, or the path of a Unix socket. */
export type HealthTarget = { url: string } | { socketPath: string };

export interface Health {
  healthy: boolean;
  ready: boolean;
  /** The first problem as text; null when the gateway is healthy and ready. */
  problem: string | null;
}

const answerTimeoutMs = 5_000;
const maxBytes = 1024 * 1024;

/** Never throws: a gateway that does not answer is unhealthy. */
export async function checkHealth(target: HealthTarget): Promise<Health> {
  try {
    const health = await get(target, '/health');
    if (health.status !== 200 || health.body['ok'] !== true)
      return { healthy: false, ready: false, problem: `/health answered ${health.status}` };
    const readiness = await get(target, '/ready');
    if (readiness.status === 200) return { healthy: true, ready: true, problem: null };
    const error = readiness.body['error'] as { message?: string } | undefined;
    const message = error?.message === undefined ? '' : `: ${error.message}`;
    return { healthy: true, ready: false, problem: `/ready answered ${readiness.status}${message}` };
  } catch (error) {
    return { healthy: false, ready: false, problem: problemOf(error) };
  }
}

function problemOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.message || (error as NodeJS.ErrnoException).code || 'no answer';
}

/** The City record of the server at the target; null when it has none or does not answer. */
export async function fetchCity(target: HealthTarget): Promise<{ cityId: string; version: string } | null> {
  try {
    const { status, body } = await get(target, '/v1/cities/current');
    return status === 200 ? { cityId: String(body['city_id']), version: String(body['version']) } : null;
  } catch {
    return null;
  }
}

function get(target: HealthTarget, path: string): Promise<{ status: number; body: Record<string, unknown> }> {
  return new Promise((resolve, reject) => {
    const clientRequest = sendGet(target, path, (response) => {
      let text = '';
      response.setEncoding('utf8');
      response.on('data', (chunk: string) => {
        if (text.length < maxBytes) text += chunk;
      });
      response.on('error', reject);
      response.on('end', () => resolve({ status: response.statusCode ?? 0, body: parseObject(text) }));
    });
    const timer = setTimeout(
      () =>
        clientRequest.destroy(new Error(`no answer from ${path} within ${answerTimeoutMs / 1_000} seconds`)),
      answerTimeoutMs,
    );
    clientRequest.once('close', () => clearTimeout(timer));
    clientRequest.once('error', reject);
    clientRequest.end();
  });
}

function sendGet(
  target: HealthTarget,
  path: string,
  onResponse: (response: IncomingMessage) => void,
): ClientRequest {
  const agent = false as const;
  if ('socketPath' in target) {
    const headers = { host: 'localhost', connection: 'close' };
    return request({ headers, agent, socketPath: target.socketPath, path }, onResponse);
  }
  const url = new URL(`${target.url.replace(/\/+$/, '')}${path}`);
  const send = url.protocol === 'https:' ? requestSecurely : request;
  return send(url, { headers: { connection: 'close' }, agent }, onResponse);
}

/** Parses a JSON object. Returns an empty object for any other text. */
function parseObject(text: string): Record<string, unknown> {
  try {
    const parsed: unknown = JSON.parse(text);
    return typeof parsed === 'object' && parsed !== null ? (parsed as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}
