// What this server offers and whether it is well. `/health` answers from memory, so it is true of the process
// alone; `/ready` asks what the work needs.
import { asProblem, Problem } from '../kernel/problem.ts';
import type { Requirement, Service } from './service.ts';

export interface DirectoryNeeds {
  /** All services of this server in the order to show them; asked at each call, so a service may come later. */
  services: () => readonly { id: string; title: string; env: readonly Requirement[] }[];
  /** Throws when the server cannot do its work now; a Problem is passed on as it is. */
  ready: () => Promise<void>;
}

export function directory({ services, ready }: DirectoryNeeds): Service<'directory'> {
  return {
    name: 'directory',
    title: 'Directory',
    env: [],
    handlers: {
      'directory.getHealth': async () => ({
        status: 200,
        body: { ok: true, services: services().map(({ id }) => id) },
      }),
      'directory.getReadiness': async () => {
        try {
          await ready();
        } catch (error) {
          throw notReady(error);
        }
        return { status: 200, body: { ready: true } };
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

// Whatever keeps the server from its work is a 503 here; a failure of ours in finding out is no 500.
function notReady(thrown: unknown): Problem {
  const problem = asProblem(thrown);
  if (problem.status === 503) return problem;
  return new Problem('unavailable', 'not_ready', 'The server cannot do its work right now.', {
    cause: thrown,
    headers: { 'retry-after': '1' },
  });
}
