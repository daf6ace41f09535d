//! Tables in Parquet: text, whole numbers and doubles, without compression.

use std::fmt;
use std::sync::Arc;

use parquet::basic::{ConvertedType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{Type, TypePtr};

use super::{Column, Values};

/// A table that Parquet does not take.
#[derive(Debug)]
pub struct ParquetProblem(ParquetError);

impl fmt::Display for ParquetProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot write Parquet: {}", self.0)
    }
}

impl std::error::Error for ParquetProblem {}

/// A table as a Parquet file. Whole numbers are 64 bits with a sign, as most readers expect them.
///
/// # Errors
/// Only if Parquet has limits that a table exceeds.
pub fn to_parquet(columns: &[Column]) -> Result<Vec<u8>, ParquetProblem> {
    write(columns).map_err(ParquetProblem)
}

fn write(columns: &[Column]) -> Result<Vec<u8>, ParquetError> {
    let fields = columns.iter().map(Column::field).collect::<Result<Vec<_>, _>>()?;
    let schema = Arc::new(Type::group_type_builder("table").with_fields(fields).build()?);
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
        let (physical, repetition) = match &self.values {
            Values::Text(_) => (Physical::BYTE_ARRAY, Repetition::REQUIRED),
            Values::Whole(values) if values.iter().all(Option::is_some) => {
                (Physical::INT64, Repetition::REQUIRED)
            }
            Values::Whole(_) => (Physical::INT64, Repetition::OPTIONAL),
            Values::Double(_) => (Physical::DOUBLE, Repetition::OPTIONAL),
        };
        let mut field = Type::primitive_type_builder(&self.name, physical).with_repetition(repetition);
        if matches!(self.values, Values::Text(_)) {
            field = field.with_converted_type(ConvertedType::UTF8);
        }
        Ok(Arc::new(field.build()?))
    }

    fn write(&self, group: &mut SerializedRowGroupWriter<'_, Vec<u8>>) -> Result<(), ParquetError> {
        let Some(mut writer) = group.next_column()? else {
            return Err(ParquetError::General("the schema has fewer columns".into()));
        };
        match &self.values {
            Values::Text(texts) => {
                let values: Vec<ByteArray> = texts.iter().map(|text| text.as_str().into()).collect();
                writer.typed::<ByteArrayType>().write_batch(&values, None, None)?;
            }
            Values::Whole(values) => {
                let present = presence(values);
                let values: Vec<i64> = values.iter().flatten().map(|value| *value as i64).collect();
                writer.typed::<Int64Type>().write_batch(&values, Some(&present), None)?;
            }
            Values::Double(values) => {
                let present = presence(values);
                let values: Vec<f64> = values.iter().copied().flatten().collect();
                writer.typed::<DoubleType>().write_batch(&values, Some(&present), None)?;
            }
        }
        writer.close()
    }
}

fn presence<T>(values: &[Option<T>]) -> Vec<i16> {
    values.iter().map(|value| i16::from(value.is_some())).collect()
}
