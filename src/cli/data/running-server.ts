// What a running gateway with an embedded database reports about itself over its control socket.
import type { ServerDescription } from '../../gateway/control.ts';
import { callControl } from '../../kernel/control.ts';

/** Undefined when no gateway runs on the data, or the gateway is too old to describe itself. */
export async function describeRunning(socket: string): Promise<ServerDescription | undefined> {
  try {
    return (await callControl(socket, 'server.describe', null)) as ServerDescription;
  } catch {
    return undefined;
  }
}
