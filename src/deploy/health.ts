// Asks a gateway whether it is well, at an address or at a socket in the file system.
import { type ClientRequest, type IncomingMessage, request } from 'node:http';
import { request as requestSecurely } from 'node:https';

/** An address such as `http://127.0.0.1:43127`, or the path of a socket. */
export type HealthPlace = { url: string } | { socketPath: string };

export interface Health {
  healthy: boolean;
  ready: boolean;
  /** The first thing that is wrong, in words. */
  problem: string | null;
}

const answerMs = 5_000;
const maximumBytes = 1024 * 1024;

/** Never throws: what does not answer is not healthy. */
export async function askHealth(place: HealthPlace): Promise<Health> {
  try {
    const health = await get(place, '/health');
    if (health.status !== 200 || health.body['ok'] !== true)
      return { healthy: false, ready: false, problem: `/health answered ${health.status}` };
    const ready = await get(place, '/ready');
    if (ready.status === 200) return { healthy: true, ready: true, problem: null };
    const error = ready.body['error'] as { message?: string } | undefined;
    return {
      healthy: true,
      ready: false,
      problem: `/ready answered ${ready.status}${error?.message === undefined ? '' : `: ${error.message}`}`,
    };
  } catch (error) {
    return {
      healthy: false,
      ready: false,
      problem:
        error instanceof Error
          ? error.message || (error as NodeJS.ErrnoException).code || 'no answer'
          : String(error),
    };
  }
}

/** Which City answers there; null when none is on record or nothing answers. */
export async function askCity(place: HealthPlace): Promise<{ cityId: string; version: string } | null> {
  try {
    const { status, body } = await get(place, '/v1/cities/current');
    return status === 200 ? { cityId: String(body['city_id']), version: String(body['version']) } : null;
  } catch {
    return null;
  }
}

function get(place: HealthPlace, path: string): Promise<{ status: number; body: Record<string, unknown> }> {
  return new Promise((resolve, reject) => {
    const options = { headers: { host: 'localhost', connection: 'close' }, agent: false as const };
    const take = (response: IncomingMessage): void => {
      let text = '';
      response.setEncoding('utf8');
      response.on('data', (piece: string) => {
        if (text.length < maximumBytes) text += piece;
      });
      response.on('error', reject);
      response.on('end', () => {
        const parsed = parse(text);
        resolve({ status: response.statusCode ?? 0, body: parsed });
      });
    };
    let asked: ClientRequest;
    if ('url' in place) {
      const address = new URL(`${place.url.replace(/\/+$/, '')}${path}`);
      const own = { ...options, headers: { connection: 'close' } };
      asked =
        address.protocol === 'https:' ? requestSecurely(address, own, take) : request(address, own, take);
    } else {
      asked = request({ ...options, socketPath: place.socketPath, path }, take);
    }
    const timer = setTimeout(
      () => asked.destroy(new Error(`no answer from ${path} within ${answerMs / 1_000} seconds`)),
      answerMs,
    );
    asked.once('close', () => clearTimeout(timer));
    asked.once('error', reject);
    asked.end();
  });
}

function parse(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}
