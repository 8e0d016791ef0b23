// Asks providers for the usage of a stream (`stream_options.include_usage`), which some of them
// reject. A rejected request is sent once more without the member, and for an hour the endpoint
// gets all requests without it.
import type { Clock } from '../../../kernel/clock.ts';
import type { Log } from '../../../kernel/log.ts';
import { Problem } from '../../../kernel/problem.ts';

/** A request whose body asks for usage. */
export interface UsageRequest {
  url: string;
  body?: string | Uint8Array | undefined;
  /** The body without the request for usage. */
  bodyWithoutUsage: () => string | Uint8Array;
  /** Time left to the first byte. */
  firstMs?: number | undefined;
}

export interface UsageRequests {
  /**
   * Sends the request, or its body without the request for usage. Throws the last error of `send`.
   */
  send<Request extends UsageRequest, Answer>(
    request: Request,
    send: (request: Request) => Promise<Answer>,
  ): Promise<Answer>;
}

const rememberedMs = 3_600_000;
// Above this number of endpoints, the oldest refusal is forgotten.
const maximumEndpoints = 1_000;

export function createUsageRequests({
  clock,
  log,
}: {
  clock: Pick<Clock, 'monotonicMs'>;
  log: Pick<Log, 'warn'>;
}): UsageRequests {
  /** When the refusal of an endpoint is forgotten, by URL and in the order of the refusals. */
  const forgottenAtMs = new Map<string, number>();

  function isRefused(url: string): boolean {
    const endMs = forgottenAtMs.get(url);
    if (endMs === undefined) return false;
    if (clock.monotonicMs() < endMs) return true;
    forgottenAtMs.delete(url);
    return false;
  }

  function remember(url: string): void {
    forgottenAtMs.delete(url);
    forgottenAtMs.set(url, clock.monotonicMs() + rememberedMs);
    const [oldestUrl] = forgottenAtMs.keys();
    if (forgottenAtMs.size > maximumEndpoints && oldestUrl !== undefined) forgottenAtMs.delete(oldestUrl);
    log.warn(
      { provider: new URL(url).host },
      'a provider refuses stream_options; for an hour its streamed calls are charged by the count of the gateway',
    );
  }

  return {
    async send(request, send) {
      const { url, bodyWithoutUsage, firstMs } = request;
      const withoutUsage = () => ({ ...request, body: bodyWithoutUsage() });
      if (isRefused(url)) return send(withoutUsage());
      const startedMs = clock.monotonicMs();
      try {
        return await send(request);
      } catch (error) {
        if (!refusesUsage(error)) throw error;
      }
      const leftMs =
        firstMs === undefined ? undefined : Math.max(firstMs - (clock.monotonicMs() - startedMs), 1);
      const answer = await send({ ...withoutUsage(), firstMs: leftMs });
      // Only a success proves that the member was the reason.
      remember(url);
      return answer;
    },
  };
}

/** Whether the error is a refusal whose body named the member, as provider-error.ts found. */
function refusesUsage(error: unknown): boolean {
  return (
    error instanceof Problem && (error.cause as { refusesUsage?: unknown } | undefined)?.refusesUsage === true
  );
}
