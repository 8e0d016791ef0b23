// The directory: which services this server has, whether the process is healthy, and whether it is ready for
// requests. `/health` answers from memory and describes only the process; `/ready` also checks what requests
// depend on.
import { publishDocument, serviceDescription } from '../kernel/contract/published-document.ts';
import { asProblem, Problem } from '../kernel/problem.ts';
import type { Requirement, Service } from './service.ts';

export function directory({
  services,
  ready,
  contract,
}: {
  /** All services in display order. Called for each request, because services are constructed later. */
  services: () => readonly { id: string; title: string; env: readonly Requirement[] }[];
  /** Rejects when the server cannot serve requests now. */
  ready: () => Promise<void>;
  /** The OpenAPI document of the server. */
  contract: object;
}): Service<'directory'> {
  const document = publishDocument(contract);
  const headers = { link: serviceDescription };
  return {
    name: 'directory',
    title: 'Directory',
    env: [],
    handlers: {
      'directory.getHealth': async () => ({
        status: 200,
        body: { ok: true, services: services().map(({ id }) => id) },
        headers,
      }),
      'directory.getDocument': async (call) => document(call.headers['if-none-match']),
      'directory.getReadiness': async () => {
        try {
          await ready();
        } catch (error) {
          throw notReady(error);
        }
        return { status: 200, body: { ready: true }, headers };
      },
      'directory.listServices': async () => ({
        status: 200,
        body: {
          items: services().map(({ id, title, env }) => ({
            id,
            name: title,
            env: env.map(({ key, description, required }) => ({ key, description, required })),
          })),
        },
      }),
    },
  };
}

// An unexpected error of the check also becomes a 503: a load balancer needs one status for "not ready".
function notReady(cause: unknown): Problem {
  const problem = asProblem(cause);
  if (problem.status === 503) return problem;
  return new Problem('unavailable', 'not_ready', 'The server cannot serve requests now.', {
    cause,
    headers: { 'retry-after': '1' },
  });
}
