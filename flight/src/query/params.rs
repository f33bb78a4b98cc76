//! Parameters of statements: `?` and `$n` are found when a text is read, and are put in as literals when it runs.

use std::collections::HashMap;
use std::ops::ControlFlow;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::util::display::array_value_to_string;
use datafusion::sql::parser::{DFParser, DFParserBuilder, Statement as Parsed};
use datafusion::sql::sqlparser::ast::{Expr, Value, visit_expressions_mut};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};
use tonic::Status;

/// Most parameters of a statement.
const PARAMETERS_MAX: usize = 4_096;
/// How deep a statement may nest.
const DEPTH_MAX: usize = 64;

/// Values for a statement's parameters, as literals.
#[derive(Debug, Clone, Default)]
pub(crate) struct Parameters(Vec<Expr>);

fn refused(error: impl std::fmt::Display) -> Status {
    Status::invalid_argument(error.to_string())
}

/// The tokens of a text, each `?` numbered like `$n`.
fn tokens(text: &str) -> Result<Vec<TokenWithSpan>, Status> {
    let mut tokens = Tokenizer::new(&GenericDialect {}, text).tokenize_with_location().map_err(refused)?;
    let mut number = 0;
    for token in &mut tokens {
        if let Token::Placeholder(name) = &mut token.token
            && name == "?"
        {
            number += 1;
            *name = format!("${number}");
        }
    }
    Ok(tokens)
}

/// Reads one statement.
///
/// # Errors
/// INVALID_ARGUMENT with the place.
pub(super) fn parse(text: &str) -> Result<Parsed, Status> {
    let parser = DFParserBuilder::new(tokens(text)?).with_dialect(&GenericDialect {}).with_recursion_limit(DEPTH_MAX);
    let mut statements = parser.build().and_then(|mut parser| parser.parse_statements()).map_err(super::df)?;
    match (statements.pop_front(), statements.is_empty()) {
        (Some(statement), true) => Ok(statement),
        _ => Err(Status::invalid_argument("expected one statement")),
    }
}

/// How many parameters a text has.
pub(super) fn count(text: &str) -> usize {
    let numbers = tokens(text).unwrap_or_default().into_iter().filter_map(|token| match token.token {
        Token::Placeholder(name) => name.strip_prefix('$').and_then(|number| number.parse().ok()),
        _ => None,
    });
    numbers.max().unwrap_or(0).min(PARAMETERS_MAX)
}

/// One field for each parameter, text where its type is not known (flight.md §1.5.2).
pub(super) fn fields(count: usize, types: &HashMap<String, Option<DataType>>) -> Schema {
    let field = |number: usize| {
        let name = format!("${number}");
        let known = types.get(&name).cloned().flatten().filter(|of| *of != DataType::Null);
        let plain = match known {
            None | Some(DataType::Utf8View) => DataType::Utf8,
            Some(other) => other,
        };
        Field::new(name, plain, true)
    };
    Schema::new((1..=count).map(field).collect::<Vec<_>>())
}

/// Puts literals in the place of parameters.
///
/// # Errors
/// INVALID_ARGUMENT where one has no value.
pub(super) fn put_in(parsed: &mut Parsed, parameters: &Parameters) -> Result<(), Status> {
    match parsed {
        Parsed::Explain(explain) => put_in(&mut explain.statement, parameters),
        Parsed::Statement(ast) => {
            let outcome = visit_expressions_mut(ast, |expr| {
                let Some(number) = number_of(expr) else { return ControlFlow::Continue(()) };
                match number.checked_sub(1).and_then(|at| parameters.0.get(at)) {
                    Some(literal) => {
                        *expr = literal.clone();
                        ControlFlow::Continue(())
                    }
                    None => ControlFlow::Break(number),
                }
            });
            match outcome {
                ControlFlow::Continue(()) => Ok(()),
                ControlFlow::Break(number) => Err(Status::invalid_argument(format!("parameter {number} has no value"))),
            }
        }
        _ => Ok(()),
    }
}

/// The number of the parameter that an expression is.
pub(super) fn number_of(expr: &Expr) -> Option<usize> {
    let Expr::Value(value) = expr else { return None };
    let Value::Placeholder(name) = &value.value else { return None };
    name.strip_prefix('$')?.parse().ok()
}

impl Parameters {
    /// Those of one row of a batch.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for a type that has no literal.
    pub(crate) fn of_row(batch: &RecordBatch, row: usize) -> Result<Self, Status> {
        let literals = batch.columns().iter().map(|array| literal(array, row));
        literals.collect::<Result<_, _>>().map(Self)
    }
}

fn literal(array: &dyn Array, row: usize) -> Result<Expr, Status> {
    if array.is_null(row) {
        return Ok(Expr::value(Value::Null));
    }
    let text = array_value_to_string(array, row).map_err(refused)?;
    Ok(match array.data_type() {
        DataType::Null => Expr::value(Value::Null),
        DataType::Boolean => Expr::value(Value::Boolean(array.as_boolean().value(row))),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Expr::value(Value::SingleQuotedString(text)),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            // Bytes are shown as hexadecimal digits.
            Expr::value(Value::HexStringLiteral(text))
        }
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => number(text),
        DataType::Dictionary(..) => {
            let DataType::Dictionary(_, value) = array.data_type() else { return Err(refused("a dictionary")) };
            let plain = arrow::compute::cast(array, value).map_err(refused)?;
            return literal(&plain, row);
        }
        other if other.is_nested() => {
            return Err(Status::invalid_argument(format!("no parameter can be {other}")));
        }
        other => {
            let cast =
                format!("arrow_cast('{}', '{}')", text.replace('\'', "''"), other.to_string().replace('\'', "''"));
            DFParser::parse_sql_into_expr(&cast).map_err(super::df)?.expr
        }
    })
}

fn number(text: String) -> Expr {
    Expr::value(Value::Number(text, false))
}
