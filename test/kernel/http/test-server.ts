// Helpers of the server tests: a server that closes with its test, requests and error bodies.
import { onTestFinished } from 'vitest';
import { startWorld, type World, type WorldOptions } from '../world.ts';

export interface ErrorBody {
  success?: boolean;
  error: {
    type: string;
    code: string;
    message: string;
    param: string | null;
    request_id: string;
    details?: { path: string; message: string }[];
  };
}

export const userHeaders = { authorization: 'Bearer user-token', 'content-type': 'application/json' };

/** Starts a server that closes at the end of the test. */
export async function startTestWorld(options: WorldOptions = {}): Promise<World> {
  const world = await startWorld(options);
  onTestFinished(() => world.close());
  return world;
}

export function post(
  url: string,
  body: string | Uint8Array<ArrayBuffer>,
  headers: Record<string, string> = { 'content-type': 'application/json' },
): Promise<Response> {
  return fetch(url, { method: 'POST', body, headers });
}

export async function errorOf(response: Response): Promise<ErrorBody> {
  return (await response.json()) as ErrorBody;
}
