import { markBeforeContent } from '../upstream/retry.ts';

/** Waits for the first item of a stream, so that an earlier failure still gets an HTTP status. */
export async function waitForFirst<T>(items: AsyncGenerator<T>): Promise<AsyncGenerator<T>> {
  const firstResult = await items.next().catch((error: unknown) => {
    markBeforeContent(error);
    throw error;
  });
  return (async function* () {
    if (firstResult.done !== true) yield firstResult.value;
    yield* items;
  })();
}
