// The TypeScript type of the values that a JSON Schema literal accepts, for the input of an action.
// It covers `const`, `enum`, `type` with one name, `properties`, `required` and `items`; the type of
// any other schema is `unknown`.

/**
 * The values of `Schema`. Write the schema inline or `as const`; otherwise TypeScript widens its literals.
 */
export type InputOf<Schema> = Schema extends { const: infer Value }
  ? Value
  : Schema extends { enum: readonly (infer Value)[] }
    ? Value
    : Schema extends { type: keyof PlainTypes }
      ? PlainTypes[Schema['type']]
      : Schema extends { type: 'array' }
        ? ItemsOf<Schema>
        : Schema extends { type: 'object' }
          ? MembersOf<Schema>
          : unknown;

interface PlainTypes {
  string: string;
  number: number;
  integer: number;
  boolean: boolean;
  null: null;
}

type ItemsOf<Schema> = Schema extends { items: infer Items } ? InputOf<Items>[] : unknown[];

type MembersOf<Schema> = Schema extends { properties: infer Properties }
  ? { [Name in keyof Properties & RequiredOf<Schema>]: InputOf<Properties[Name]> } & {
      [Name in Exclude<keyof Properties, RequiredOf<Schema>>]?: InputOf<Properties[Name]>;
    }
  : Record<string, unknown>;

type RequiredOf<Schema> = Schema extends { required: readonly (infer Name)[] } ? Name : never;
