//! The same rows as CSV's, in Parquet: text, whole numbers and doubles, without compression.

use std::fmt;
use std::sync::Arc;

use parquet::basic::{ConvertedType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{Type, TypePtr};

use super::csv::{LEADING, column};
use super::{Measures, Metric};
use crate::plan::{PARAMETERS, Plan, Run};

/// A table that Parquet does not take.
#[derive(Debug)]
pub struct ParquetProblem(ParquetError);

impl fmt::Display for ParquetProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot write Parquet: {}", self.0)
    }
}

impl std::error::Error for ParquetProblem {}

/// A column and what is in it.
enum Column {
    Text(String, Vec<String>),
    Whole(String, Vec<i64>),
    Double(String, Vec<Option<f64>>),
}

/// All runs as a Parquet file.
///
/// # Errors
/// Only if Parquet has limits that a plan exceeds.
pub fn parquet(plan: &Plan, runs: &[Run], measures: &[Measures]) -> Result<Vec<u8>, ParquetProblem> {
    write(&columns(plan, runs, measures)).map_err(ParquetProblem)
}

fn columns(plan: &Plan, runs: &[Run], measures: &[Measures]) -> Vec<Column> {
    let text =
        |name: &str, of: &dyn Fn(&Run) -> String| Column::Text(name.into(), runs.iter().map(of).collect());
    let [name, point, scheme, seed] = LEADING;
    let mut columns = vec![
        text(name, &|_| plan.name.clone()),
        text(point, &|run| plan.point_name(&run.points)),
        text(scheme, &|run| plan.schemes[run.scheme].name.clone()),
        Column::Whole(seed.into(), runs.iter().map(|run| run.seed as i64).collect()),
    ];
    for (place, parameter) in PARAMETERS.iter().enumerate() {
        columns.push(text(&column(parameter), &|run| run.params.values()[place].to_string()));
    }
    for metric in Metric::ALL {
        let values = measures.iter().map(|measures| measures.get(metric)).collect();
        columns.push(Column::Double(metric.name().into(), values));
    }
    let fingerprints = measures.iter().map(|measures| format!("{:016x}", measures.fingerprint));
    columns.push(Column::Text("fingerprint".into(), fingerprints.collect()));
    columns
}

fn write(columns: &[Column]) -> Result<Vec<u8>, ParquetError> {
    let fields = columns.iter().map(Column::field).collect::<Result<Vec<_>, _>>()?;
    let schema = Arc::new(Type::group_type_builder("runs").with_fields(fields).build()?);
    // The library's version would otherwise be part of the file.
    let properties = WriterProperties::builder().set_created_by("highwire".into()).build();
    let mut file = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties))?;
    let mut group = file.next_row_group()?;
    columns.iter().try_for_each(|column| column.write(&mut group))?;
    group.close()?;
    file.into_inner()
}

impl Column {
    fn field(&self) -> Result<TypePtr, ParquetError> {
        let (name, physical, repetition) = match self {
            Column::Text(name, _) => (name, Physical::BYTE_ARRAY, Repetition::REQUIRED),
            Column::Whole(name, _) => (name, Physical::INT64, Repetition::REQUIRED),
            Column::Double(name, _) => (name, Physical::DOUBLE, Repetition::OPTIONAL),
        };
        let mut field = Type::primitive_type_builder(name, physical).with_repetition(repetition);
        if matches!(self, Column::Text(..)) {
            field = field.with_converted_type(ConvertedType::UTF8);
        }
        Ok(Arc::new(field.build()?))
    }

    fn write(&self, group: &mut SerializedRowGroupWriter<'_, Vec<u8>>) -> Result<(), ParquetError> {
        let Some(mut writer) = group.next_column()? else {
            return Err(ParquetError::General("the schema has fewer columns".into()));
        };
        match self {
            Column::Text(_, texts) => {
                let values: Vec<ByteArray> = texts.iter().map(|text| text.as_str().into()).collect();
                writer.typed::<ByteArrayType>().write_batch(&values, None, None)?;
            }
            Column::Whole(_, values) => {
                writer.typed::<Int64Type>().write_batch(values, None, None)?;
            }
            Column::Double(_, values) => {
                let present: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
                let values: Vec<f64> = values.iter().copied().flatten().collect();
                writer.typed::<DoubleType>().write_batch(&values, Some(&present), None)?;
            }
        }
        writer.close()
    }
}
