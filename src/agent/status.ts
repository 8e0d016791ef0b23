// Health for anyone, and the agent's name for the holder of its token. Neither reads the database, so both answer while
// it is away: they say that this process responds.
import type { Clock } from '../kernel/clock.ts';
import type { Service } from './service.ts';

export function status({
  name,
  clock,
  isDraining,
}: {
  name: string;
  clock: Clock;
  /** Whether the agent is shutting down and takes no more work. */
  isDraining(): boolean;
}): Service<'status'> {
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
