// Health for whoever knocks, and the agent's name for whoever holds its token. Neither asks the database: they
// say that this process answers, and go on saying it while the database is away.
import type { Clock } from '../kernel/clock.ts';
import type { Service } from './service.ts';

export interface StatusNeeds {
  name: string;
  clock: Clock;
  /** Whether the agent has been asked to stop and takes no more work. */
  isDraining(): boolean;
}

export function status({ name, clock, isDraining }: StatusNeeds): Service<'status'> {
  const timestamp = () => clock.now().toISOString();
  return {
    name: 'status',
    handlers: {
      'status.getHealth': async () => ({ status: 200, body: { status: 'ok', timestamp: timestamp() } }),
      'status.getStatus': async () => ({
        status: 200,
        body: { name, status: isDraining() ? 'draining' : 'running', timestamp: timestamp() },
      }),
    },
  };
}
