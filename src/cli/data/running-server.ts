// What a running gateway with an embedded database says about itself over its control socket.
import type { ServerDescription } from '../../gateway/control.ts';
import { callControl } from '../../kernel/control.ts';

/** Undefined where no gateway runs with the data, or one of an older version. */
export async function describeRunning(socket: string): Promise<ServerDescription | undefined> {
  try {
    return (await callControl(socket, 'server.describe', null)) as ServerDescription;
  } catch {
    return undefined;
  }
}
