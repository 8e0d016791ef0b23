// Validates requests against the schemas of the contract. openapi-backend compiles the
// validators of an operation; this file provides Ajv engines that share one copy of the document.
import { Ajv2020, type Options, type ValidateFunction } from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import { type Document, OpenAPIRouter, OpenAPIValidator, ValidationContext } from 'openapi-backend';
import { isRecord, type JsonRecord } from '../json-value.ts';
import { Problem } from '../problem.ts';
import { type OpenApiDocument, resolveReference } from './document.ts';
import type { OperationInput } from './input.ts';
import type { ContractOperation } from './operations.ts';
import { useQuickLengths } from './text-length.ts';
import { invalidRequestProblem, type SchemaError, type SchemaTools } from './validation-errors.ts';

/** Checks a value against one schema; returns its errors, none for a valid value. */
export type CompiledSchema = (value: unknown) => SchemaError[];

export interface RequestValidator {
  /** Throws a 400 that names every invalid member. Coerces parameters in place, as they arrive as text. */
  validate(operation: ContractOperation, input: OperationInput): void;
  /**
   * Compiles the validators of the operation ahead of its first request. Throws for
   * a schema that does not compile.
   */
  prepare(operation: ContractOperation): void;
  /** Compiles a schema of the document; it may refer to others. */
  compile(schema: JsonRecord): CompiledSchema;
}

// The id of the document in ajv, which compiles its `$ref`s once and shares them between all operations.
const documentId = 'contract.json';
// Finding all errors costs more than finding the first. Larger bodies get only the first one.
const maxExplainedBytes = 16 * 1024;

export function createRequestValidator(
  document: OpenApiDocument,
  operations: readonly ContractOperation[],
): RequestValidator {
  // Each engine is created when it is first used: the server starts without any.
  const bodyEngine = makeLazily(() => createEngine(document, {}));
  // A parameter arrives as text, so `"5"` is valid for an integer; in a body it is not.
  const parameterEngine = makeLazily(() => createEngine(document, { coerceTypes: true }));
  const explain = createExplainer(document, bodyEngine);
  const validators = new Map<string, readonly ValidateFunction[]>();

  const compiler = createCompiler(operations, (context) =>
    context === ValidationContext.Params ? parameterEngine() : bodyEngine(),
  );

  // Not openapi-backend's validateRequest: it parses query, headers and cookies of every
  // request again and reports the errors of the body before those of the parameters.
  function validatorsOf({ operationId, body }: ContractOperation): readonly ValidateFunction[] {
    const existing = validators.get(operationId);
    if (existing) return existing;
    const compiledValidators = [...compiler.getRequestValidatorsForOperation(operationId)].reverse();
    // openapi-backend compiles one media type and drops required files of a form.
    if (body?.form?.schema)
      compiledValidators.push(
        bodyEngine().compile({
          type: 'object',
          properties: { requestForm: withAbsoluteReferences(body.form.schema) },
        }),
      );
    validators.set(operationId, compiledValidators);
    return compiledValidators;
  }

  return {
    validate(operation, input) {
      const { path, query, headers, body, isForm } = input;
      const values = isForm
        ? { path, query, header: headers, requestForm: formValues(operation, body) }
        : { path, query, header: headers, requestBody: body };
      for (const validate of validatorsOf(operation)) {
        if (!validate(values)) throw explain(operation, input, (validate.errors ?? []) as SchemaError[]);
      }
    },
    prepare: (operation) => void validatorsOf(operation),
    compile(schema) {
      const validate = bodyEngine().compile(withAbsoluteReferences(schema));
      return (value) => errorsOf(validate, value);
    },
  };
}

/** The compiler of openapi-backend over our engines. */
function createCompiler(
  operations: readonly ContractOperation[],
  engineOf: (context: ValidationContext) => Ajv2020,
): OpenAPIValidator {
  const definition = compilableDocument(operations);
  return new OpenAPIValidator({
    definition,
    router: new OpenAPIRouter({ definition }),
    lazyCompileValidators: true,
    customizeAjv: (_ajv, _options, context) => engineOf(context),
  });
}

type Explain = (operation: ContractOperation, input: OperationInput, errors: SchemaError[]) => Problem;

/** Explains an invalid request: all errors of a small body, else the first one. */
function createExplainer(document: OpenApiDocument, bodyEngine: () => Ajv2020): Explain {
  const explainEngine = makeLazily(() => createEngine(document, { allErrors: true }));
  const allExplainers: Explainers = new WeakMap();
  const quickExplainers: Explainers = new WeakMap();
  const resolve: SchemaTools['resolve'] = (schema) =>
    isRecord(schema) ? resolveReference<JsonRecord>(document, schema) : {};
  const tools: SchemaTools = { resolve, check: (schema, value) => allErrors(schema as JsonRecord, value) };
  // With all errors, a long list within one form of a union would yield an error for each of its items.
  const quickTools: SchemaTools = {
    resolve,
    check: (schema, value) => firstError(schema as JsonRecord, value),
  };

  const allErrors = (schema: JsonRecord, value: unknown) =>
    errorsOf(explainerOf(schema, allExplainers, explainEngine), value);
  const firstError = (schema: JsonRecord, value: unknown) =>
    errorsOf(explainerOf(schema, quickExplainers, bodyEngine), value);

  return ({ body }, input, errors) => {
    const schema = body?.json?.schema;
    const isInBody = errors.some(({ instancePath }) => instancePath.startsWith('/requestBody'));
    const isLarge = input.rawBody.byteLength > maxExplainedBytes;
    if (input.isForm || !isInBody || !schema || isLarge)
      return invalidRequestProblem(errors.map(asBodyError), isLarge ? quickTools : tools);
    const violations = allErrors(schema, input.body);
    return invalidRequestProblem(
      violations.map((error) => ({ ...error, instancePath: `/requestBody${error.instancePath}` })),
      tools,
    );
  };
}

type Explainers = WeakMap<object, ValidateFunction>;

function explainerOf(schema: JsonRecord, explainers: Explainers, engine: () => Ajv2020): ValidateFunction {
  const explainer = explainers.get(schema) ?? engine().compile(withAbsoluteReferences(schema));
  explainers.set(schema, explainer);
  return explainer;
}

function errorsOf(validate: ValidateFunction, value: unknown): SchemaError[] {
  return validate(value) ? [] : [...((validate.errors ?? []) as SchemaError[])];
}

function asBodyError(error: SchemaError): SchemaError {
  return { ...error, instancePath: error.instancePath.replace(/^\/requestForm/, '/requestBody') };
}

function makeLazily<T>(make: () => T): () => T {
  let value: T | undefined;
  return () => (value ??= make());
}

// The members of a form as its schema describes them, with an empty string for each file, since a
// schema cannot check bytes. Throws unless exactly the members declared as files are files.
function formValues({ body }: ContractOperation, members: unknown): Record<string, unknown> {
  // Without a prototype, so that `__proto__` is an ordinary undeclared name.
  const values = Object.create(null) as Record<string, unknown>;
  for (const [name, value] of Object.entries(members as Record<string, unknown>)) {
    const mustBeFile = body?.formFiles.has(name) === true;
    if ([value].flat().some((member) => (typeof member === 'object') !== mustBeFile)) {
      const message = mustBeFile ? 'must be a file' : 'must not be a file';
      throw new Problem('bad_request', 'invalid_request', `The member \`${name}\` ${message}.`, {
        param: name,
        details: [{ path: name, message }],
      });
    }
    const asText = (member: unknown) => (typeof member === 'object' ? '' : member);
    values[name] = Array.isArray(value) ? value.map(asText) : asText(value);
  }
  return values;
}

const engineOptions: Options = {
  // Strict mode rejects unknown keywords, and the contract has some that validate nothing.
  strict: false,
  // validation-errors.ts needs the schema of each error.
  verbose: true,
  logger: false,
  // The contract's lint has checked its schemas. Checking them here would make each engine compile the
  // metaschema first.
  validateSchema: false,
  // V8 does the same: compiling takes a third less time and 30 MB less garbage, and checks are as fast.
  code: { optimize: false },
  // The discriminator keyword stays off, as ajv rejects its mapping; `oneOf` with `const` is equivalent.
};

function createEngine(
  document: OpenApiDocument,
  options: { coerceTypes?: boolean; allErrors?: boolean },
): Ajv2020 {
  const ajv = new Ajv2020({ ...engineOptions, ...options });
  addFormats.default(ajv);
  useQuickLengths(ajv);
  const { validate } = ajv.formats['date-time'] as { validate: (text: string) => boolean };
  ajv.addFormat('date-time', (text) => validate(text) && isStorableTime(new Date(text)));
  // References point only to components. With the paths, Ajv would visit every member of them too.
  return ajv.addSchema({ components: document.components }, documentId, false, false);
}

// Rejects leap seconds, for which Date is invalid, and years outside of 1000 to 9999, which
// PostgreSQL reads differently from how Date writes them.
function isStorableTime(time: Date): boolean {
  const year = time.getUTCFullYear();
  return year >= 1_000 && year <= 9_999;
}

/**
 * The operations in the form for openapi-backend: parameters resolved, references made absolute.
 * It would otherwise copy every schema into every operation and follow recursive ones without end.
 */
function compilableDocument(operations: readonly ContractOperation[]): Document {
  const paths: Record<string, Record<string, object>> = {};
  for (const operation of operations) {
    const { operationId, path, method, body } = operation;
    const schema = body?.json?.schema;
    const content = { 'application/json': { schema: schema && withAbsoluteReferences(schema) } };
    paths[path] = {
      ...paths[path],
      [method]: {
        operationId,
        parameters: compilableParameters(operation),
        ...(schema ? { requestBody: { content } } : {}),
        responses: {},
      },
    };
  }
  return { openapi: '3.1.0', info: { title: '', version: '' }, paths } as Document;
}

function compilableParameters({ parameters, headerNames, allowsAnyQuery }: ContractOperation): object[] {
  const declaredParameters = parameters
    .filter((parameter) => parameter.in !== 'header' || headerNames.includes(parameter.name.toLowerCase()))
    .map(({ name, in: location, required = false, schema }) => ({
      name,
      in: location,
      required,
      schema: withAbsoluteReferences(schema ?? {}),
    }));
  // OpenAPI declares free-form query parameters as one parameter with additional properties.
  const anyQuery = { name: '*', in: 'query', schema: { additionalProperties: true } };
  return allowsAnyQuery ? [...declaredParameters, anyQuery] : declaredParameters;
}

/** The schema with absolute references into the document. */
function withAbsoluteReferences(schema: JsonRecord): JsonRecord {
  const convert = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(convert);
    return isRecord(value) ? withAbsoluteReferences(value) : value;
  };
  return Object.fromEntries(
    Object.entries(schema).map(([name, value]) =>
      name === '$ref' && typeof value === 'string' && value.startsWith('#')
        ? [name, documentId + value]
        : [name, convert(value)],
    ),
  );
}
