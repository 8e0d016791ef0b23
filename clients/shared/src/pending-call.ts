// The return value of a method: a promise of the response's data, which can also
// resolve with the response's metadata and, for a list, iterate over all pages.

/** The data of a call with the metadata of its response. */
export interface CallResponse<Data> {
  data: Data;
  status: number;
  /** Names in lower case. */
  headers: Readonly<Record<string, string>>;
  /** The server's id of the request, to quote in a support request. */
  requestId: string | undefined;
  /**
   * The price of the call in credits, a millionth of a US dollar each; undefined
   * when the response does not contain it.
   */
  credits: number | undefined;
}

export interface PendingCall<Data> extends Promise<Data> {
  /**
   * The data with the status, headers, request id and price of its response.
   *
   * @example
   * ```ts
   * const { data, requestId, credits } = await client.ai.generateText({ model, prompt }).withResponse();
   * ```
   */
  withResponse(): Promise<CallResponse<Data>>;
}

/**
 * A list: awaited, it resolves with the first page; iterated, it yields every item of all pages and
 * requests each page on demand.
 */
export interface PendingPage<Page, Item> extends PendingCall<Page>, AsyncIterable<Item> {}

/** The type of the items of a response with a cursor of the next page; `never` for any other response. */
export type ItemOf<Answer> = Answer extends
  | { items: readonly (infer Item)[]; next_cursor: string | null }
  | { items: readonly (infer Item)[]; nextCursor: string | null }
  ? Item
  : never;

export function createPendingCall<Data>(outcome: Promise<CallResponse<Data>>): PendingCall<Data> {
  const data = outcome.then((response) => response.data);
  return Object.assign(data, {
    withResponse: () => {
      // The caller handles the rejection of `outcome`. Without this handler, the same rejection of `data`
      // would be reported as unhandled.
      data.catch(() => {});
      return outcome;
    },
  });
}

/** The call with all items of its pages; `request` makes the call for another page. */
export function withPages<Page>(
  first: PendingCall<Page>,
  request: (cursor: string) => Promise<Page>,
): PendingPage<Page, unknown> {
  return Object.assign(first, {
    async *[Symbol.asyncIterator]() {
      let page: unknown = await first;
      for (;;) {
        const { items, next_cursor, nextCursor } = page as {
          items?: unknown;
          next_cursor?: string | null;
          nextCursor?: string | null;
        };
        if (!Array.isArray(items)) throw new TypeError('This operation has no pages to iterate over.');
        yield* items as unknown[];
        const cursor = next_cursor ?? nextCursor;
        if (cursor === undefined || cursor === null) return;
        page = await request(cursor);
      }
    },
  });
}

/** The metadata of a response. */
export function describeResponse(response: Response): Omit<CallResponse<never>, 'data'> {
  const headers = Object.fromEntries(response.headers);
  const credits = headers['x-townhall-credits'];
  return {
    status: response.status,
    headers,
    requestId: headers['x-request-id'],
    credits: credits === undefined ? undefined : Number(credits),
  };
}
